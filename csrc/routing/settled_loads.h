// SettledLoads: what flows put on links where each divides its bytes between minimal and Valiant's paths as queues in
// front of links would settle it, at the rates at which the first link is full.
// Example: SettledLoads settled(*valiant); settled.add(0, 5, 1e6); settled.loads();
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "routing/spray.h"
#include "routing/valiant.h"

namespace rostam::routing {

// Bytes move between the two until a path of one costs what one of the other does: links cost their crossing time times
// a high power of how full they are, of the fullest, and a little for being there at all, so that bytes leave minimal
// paths only for links near the fullest. What the fullest link carries comes within a few percent of the least that any
// such division allows. Flows between the same switches share their division.
class SettledLoads {
 public:
  explicit SettledLoads(const ValiantPaths& valiant);

  // Units: num_bytes [bytes]. Throws: NoRouteError for a pair without a path.
  void add(int32_t src, int32_t dst, double num_bytes);
  // The same of each of `members` to every other one.
  void add_uniform(const std::vector<int32_t>& members, double num_bytes);

  // By engine link [bytes]. Throws: ConfigError for too many pairs of switches.
  // Cost: some tens of rounds of switches x links.
  std::vector<double> loads();

 private:
  struct Pair {
    int32_t from = 0, to = 0;
    int32_t list = -1;  // of vertices that Valiant's paths go by; -1: there are minimal paths only
    double bytes = 0;
    double share = 0;  // on Valiant's paths
  };
  // Pairs with the same vertices to go by.
  struct List {
    std::vector<int32_t> by;
    std::vector<uint8_t> holds;                // by vertex
    std::vector<double> cost_to, sent;         // by vertex: to those, in the mean; bytes that go there
    std::vector<double> cost_from, delivered;  // and on from them
  };
  int32_t site(int32_t accelerator, double num_bytes, bool is_source);
  void add_pair(int32_t src, int32_t dst, int32_t from, int32_t to, double num_bytes);
  void find_lists();
  void find_prices(const std::vector<double>& loads, double fullest_s);
  void find_costs();
  double better_share(size_t pair) const;
  std::vector<double> loads_of(const std::vector<double>& shares);
  double step_along(const std::vector<double>& loads, const std::vector<double>& change, double fullest_s) const;
  double fullest_s(const std::vector<double>& loads) const;

  const ValiantPaths& valiant_;
  const SprayPaths& paths_;
  const std::vector<double>& capacities_;
  std::vector<double> fixed_;  // on links that flows take either way
  std::vector<Pair> pairs_;    // by destination, once loads() is asked for
  std::unordered_map<uint64_t, size_t> pair_of_;
  std::unordered_map<uint64_t, std::pair<int32_t, int32_t>> ends_of_;  // of a pair: accelerators at its ends
  std::vector<List> lists_;
  std::vector<int32_t> sites_;  // vertices that pairs start at or go by
  std::vector<int32_t> targets_;
  std::vector<double> minimal_cost_, valiant_cost_;  // by pair
  std::vector<double> prices_;                       // by link
};

}  // namespace rostam::routing
