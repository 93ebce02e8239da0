#include "analytic/route_costs.h"

#include <algorithm>

namespace rostam::analytic {

RouteCosts route_costs(const routing::Router& router, const Flows& flows) {
  const size_t num_flows = flows.src.size();
  std::vector<routing::Route> routes(num_flows);
  std::vector<double> loads(router.capacities().size(), 0.0);
  for (size_t i = 0; i < num_flows; ++i) {
    if (flows.src[i] == flows.dst[i]) continue;
    routes[i] = router.route(flows.src[i], flows.dst[i], i);
    for (const routing::LinkShare& part : routes[i].links) {
      loads[static_cast<size_t>(part.link)] += part.share * flows.num_bytes[i];
    }
  }
  RouteCosts costs;
  for (const routing::Route& route : routes) {
    double longest = 0;
    for (const routing::LinkShare& part : route.links) {
      const auto link = static_cast<size_t>(part.link);
      longest = std::max(longest, loads[link] / router.capacities()[link]);
    }
    costs.latency_ps.push_back(route.latency.ps());
    costs.seconds.push_back(longest);
  }
  return costs;
}

}  // namespace rostam::analytic
