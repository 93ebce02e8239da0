#include "analytic/route_costs.h"

#include <algorithm>

#include "sim/interrupt.h"

namespace rostam::analytic {

namespace {

// The part of a flow on the mean plane that each link of its route sees: 1 in one class of planes, its lane's where
// planes differ.
template <typename Visit>
void for_each_link(const routing::Route& route, int32_t num_planes, Visit visit) {
  if (route.lanes.empty()) {
    for (const routing::LinkShare& part : route.links) visit(part, 1.0);
    return;
  }
  double total = 0;
  for (const routing::Lane& lane : route.lanes) total += lane.bytes_per_s * lane.num_planes;
  for (const routing::Lane& lane : route.lanes) {
    for (uint32_t h = lane.first_link; h < lane.end_link; ++h) {
      visit(route.links[h], num_planes * (lane.bytes_per_s / total));
    }
  }
}

}  // namespace

RouteCosts route_costs(const routing::RouteTable& routes, const Flows& flows) {
  const size_t num_flows = flows.src.size();
  const std::vector<double>& capacities = routes.links().capacities;
  std::vector<routing::Route> found(num_flows);
  std::vector<double> loads(capacities.size(), 0.0);
  InterruptPoll poll;
  for (size_t i = 0; i < num_flows; ++i) {
    poll();
    if (flows.src[i] == flows.dst[i]) continue;
    found[i] = *routes.route_of({flows.src[i], flows.dst[i], i});
    for_each_link(found[i], routes.num_planes(), [&](const routing::LinkShare& part, double share_of_flow) {
      loads[static_cast<size_t>(part.link)] += part.share * (share_of_flow * flows.num_bytes[i]);
    });
  }
  RouteCosts costs;
  for (const routing::Route& route : found) {
    double longest = 0;
    for (const routing::LinkShare& part : route.links) {
      const auto link = static_cast<size_t>(part.link);
      longest = std::max(longest, loads[link] / capacities[link]);
    }
    costs.latency_ps.push_back(route.latency.ps());
    costs.seconds.push_back(longest);
  }
  return costs;
}

}  // namespace rostam::analytic
