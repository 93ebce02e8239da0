#include "analytic/link_loads.h"

#include <algorithm>
#include <limits>

namespace rostam::analytic {

namespace {

// Planes that differ: each takes the part of a flow that its lanes offer.
void add_lanes(const routing::RouteTable& routes, const routing::Channel& channel, double num_bytes,
               std::vector<double>& loads) {
  if (channel.src == channel.dst || num_bytes == 0) return;
  const routing::Route route = *routes.route_of(channel);
  double total = 0;
  for (const routing::Lane& lane : route.lanes) total += lane.bytes_per_s * lane.num_planes;
  for (const routing::Lane& lane : route.lanes) {
    const double part = num_bytes * routes.num_planes() * (lane.bytes_per_s / total);
    for (uint32_t h = lane.first_link; h < lane.end_link; ++h) {
      loads[static_cast<size_t>(route.links[h].link)] += route.links[h].share * part;
    }
  }
}

}  // namespace

std::vector<double> link_loads(const routing::RouteTable& routes, const Flows& flows) {
  std::vector<double> loads(routes.links().capacities.size(), 0.0);
  if (routes.planes().size() == 1) {
    routes.planes().front().policy->add_loads(flows, loads);
    return loads;
  }
  for (size_t i = 0; i < flows.src.size(); ++i) {
    add_lanes(routes, {flows.src[i], flows.dst[i], i}, flows.num_bytes[i], loads);
  }
  return loads;
}

std::vector<double> all_to_all_loads(const routing::RouteTable& routes, const std::vector<int32_t>& members,
                                     double num_bytes) {
  std::vector<double> loads(routes.links().capacities.size(), 0.0);
  const double part = num_bytes / static_cast<double>(std::max<size_t>(1, members.size() - 1));
  if (routes.planes().size() == 1) {
    routes.planes().front().policy->add_uniform_loads(members, part, loads);
    return loads;
  }
  uint64_t hash = 0;
  for (const int32_t src : members) {
    for (const int32_t dst : members) add_lanes(routes, {src, dst, hash++}, part, loads);
  }
  return loads;
}

double headroom(const routing::RouteTable& routes, const std::vector<double>& loads) {
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < loads.size(); ++i) {
    if (loads[i] > 0) least = std::min(least, routes.links().capacities[i] / loads[i]);
  }
  return least;
}

}  // namespace rostam::analytic
