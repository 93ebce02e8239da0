// SprayPaths: spray between any vertices, over the shortest of the walks that a rule allows; what routings share that
// put walks together or take their own turns.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "routing/registry.h"

namespace rostam::routing {

class SprayPaths : public RoutePolicy {
 public:
  // As route, between any two vertices, neither of them failed. REQUIRES: from != to; what is in between forwards.
  // Throws: NoRouteError if no path is left.
  virtual Route between(int32_t from, int32_t to, bool wants_steps) const = 0;

  // As MinimalPaths has it.
  virtual void number_channels(Steps& steps) const = 0;

  // by_detours: also over walks that are there for want of others (fabric::PathRule).
  virtual bool reaches(int32_t from, int32_t to, bool by_detours) const = 0;

  // Adds the loads of what every vertex holds on its way to `to`. Units: held [bytes], over vertices.
  virtual void add_loads_to(int32_t to, const std::vector<double>& held, std::vector<double>& loads) const = 0;

  // What a byte on its way from each of the vertices `from` to `to` meets of prices per byte and link, in the mean over
  // its paths: costs[v], 0 at `to` and where it is out of reach. `costs` is over all vertices.
  virtual void find_costs_to(int32_t to, const std::vector<double>& prices, const std::vector<int32_t>& from,
                             std::vector<double>& costs) const = 0;
};

// Spray of walks by `rule`, or by the fabric's own where it is null; no links are bundled. note: the policy's.
std::unique_ptr<SprayPaths> make_spray_paths(std::shared_ptr<const fabric::Fabric> fabric, SimTime message_overhead,
                                             std::shared_ptr<const fabric::PathRule> rule, std::string note = {});

}  // namespace rostam::routing
