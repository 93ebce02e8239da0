// ValiantPaths: Valiant's way of a pair in two halves, to the intermediate vertices and on from them, where all pairs
// go by way of the same ones. Halves are kept for each switch, not for each pair. Example: if (valiant->has_halves())
// valiant->halves(src, dst).towards->links.size();
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "routing/registry.h"
#include "routing/spray.h"

namespace rostam::routing {

class ValiantPaths : public RoutePolicy {
 public:
  // Between a vertex and all intermediate ones: the mean over them.
  struct Half {
    std::vector<LinkShare> links;
    std::vector<SimTime> latencies;  // by intermediate vertex, what forwards at its two ends excluded
  };
  // Of a pair; `first` and `last` are links that all of it takes, between an accelerator and its only switch, -1 where
  // there is none: the halves are the switches' then.
  struct Halves {
    std::shared_ptr<const Half> towards, onwards;
    int32_t first = -1, last = -1;
  };

  // The vertices that messages of a pair go by, an equal share each; none: they take minimal paths.
  // Throws: NoRouteError for a pair without a path, ConfigError for accelerators that do not exist.
  virtual std::vector<int32_t> by_way_of(int32_t src, int32_t dst) const = 0;

  // The switch that an accelerator is on, if its only link leads there from it (or from there to it, at a destination),
  // which is found; else the accelerator.
  virtual int32_t site(int32_t accelerator, bool is_source, int32_t& link) const = 0;

  // Its minimal paths.
  virtual const SprayPaths& paths() const = 0;

  // True if every accelerator reaches every intermediate vertex, and is reached from it, without detours.
  virtual bool has_halves() const = 0;
  // REQUIRES: has_halves(), src != dst.
  virtual Halves halves(int32_t src, int32_t dst) const = 0;
  // route(src, dst) put together from them; shares differ from its own by rounding.
  virtual Route route_of(int32_t src, int32_t dst, const Halves& halves) const = 0;
};

std::unique_ptr<ValiantPaths> make_valiant_paths(const std::shared_ptr<const fabric::Fabric>& fabric,
                                                 const PolicyOptions& options);

}  // namespace rostam::routing
