// What each of a set of messages, all sent at once, costs on its own route: alpha and seconds on its busiest link.
// Example: route_costs(routes, flows) of a ring step; its slowest message takes alpha + seconds.
#pragma once

#include <cstdint>
#include <vector>

#include "analytic/link_loads.h"

namespace rostam::analytic {

// latency_ps[i]: of flow i's route. seconds[i]: what the fullest link of the route needs for the bytes that all
// flows put on it; infinity across a link of capacity 0.
struct RouteCosts {
  std::vector<int64_t> latency_ps;
  std::vector<double> seconds;
};

// num_bytes are of the mean plane. Flow i is routed with message hash i where the routing hashes.
// Throws: NoRouteError for a pair without a path. Cost: O(flows x path), which it also holds.
RouteCosts route_costs(const routing::RouteTable& routes, const Flows& flows);

}  // namespace rostam::analytic
