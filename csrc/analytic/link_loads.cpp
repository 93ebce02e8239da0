#include "analytic/link_loads.h"

#include <algorithm>
#include <limits>

#include "routing/symmetry.h"
#include "sim/interrupt.h"

namespace rostam::analytic {

namespace {

// Planes that differ: each takes the part of a flow that its lanes offer.
void add_lanes(const routing::RouteTable& routes, const routing::Channel& channel, double num_bytes,
               std::vector<double>& loads) {
  if (channel.src == channel.dst || num_bytes == 0) return;
  poll_interrupt();
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

// Whether the map takes each member to one of them. is_member: by accelerator.
bool keeps_members(const std::vector<int32_t>& map, const std::vector<int32_t>& members,
                   const std::vector<uint8_t>& is_member) {
  return std::all_of(members.begin(), members.end(),
                     [&](int32_t a) { return map[a] < static_cast<int32_t>(is_member.size()) && is_member[map[a]]; });
}

// The loads of an all-to-all where maps take the fabric, its routes and the members onto themselves. What all send to
// the members of an orbit loads the links of an orbit alike, and in sum as often what they send to the first of them:
// flows to one member of each orbit are enough. False if there are no such maps.
bool add_by_orbits(const routing::RoutePolicy& policy, const std::vector<int32_t>& members, double num_bytes,
                   std::vector<double>& loads) {
  if (!policy.follows_symmetries()) return false;
  const fabric::Fabric& fabric = policy.fabric();
  std::vector<uint8_t> is_member(static_cast<size_t>(fabric.num_accelerators()), 0);
  for (const int32_t a : members) is_member[a] = 1;
  routing::Orbits accelerators(is_member.size()), links(loads.size());
  bool has_any = false;
  for (const std::vector<int32_t>& map : fabric.symmetries()) {
    poll_interrupt();
    const auto image = routing::image_of_links(fabric, policy.links(), map);
    if (!image.has_value() || !keeps_members(map, members, is_member)) continue;
    has_any = true;
    for (const int32_t a : members) accelerators.join(a, map[a]);
    for (size_t l = 0; l < loads.size(); ++l) links.join(static_cast<int32_t>(l), (*image)[l]);
  }
  if (!has_any) return false;
  std::vector<double> size_of(is_member.size(), 0);  // of the orbit, by its first member
  for (const int32_t a : members) ++size_of[accelerators.find(a)];
  Flows flows;
  for (const int32_t dst : members) {
    if (accelerators.find(dst) != dst) continue;
    for (const int32_t src : members) {
      flows.src.push_back(src);
      flows.dst.push_back(dst);
      flows.num_bytes.push_back(num_bytes * size_of[dst]);
    }
  }
  policy.add_loads(flows, loads);
  std::vector<double> sum(loads.size(), 0), count(loads.size(), 0);
  for (size_t l = 0; l < loads.size(); ++l) {
    const int32_t first = links.find(static_cast<int32_t>(l));
    sum[first] += loads[l];
    ++count[first];
  }
  for (size_t l = 0; l < loads.size(); ++l) {
    const int32_t first = links.find(static_cast<int32_t>(l));
    loads[l] = sum[first] / count[first];
  }
  return true;
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
    const routing::RoutePolicy& policy = *routes.planes().front().policy;
    if (!add_by_orbits(policy, members, part, loads)) policy.add_uniform_loads(members, part, loads);
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
