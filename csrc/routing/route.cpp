#include "routing/route.h"

#include <algorithm>
#include <cmath>

namespace rostam::routing {

std::vector<int64_t> lane_bytes(const Route& route, int64_t bytes) {
  const double first = route.lanes.front().bytes_per_s;
  double total = 0;
  int64_t num_planes = 0;
  for (const Lane& lane : route.lanes) {
    total += lane.bytes_per_s * lane.num_planes;
    num_planes += lane.num_planes;
  }
  const bool are_equal = std::all_of(route.lanes.begin(), route.lanes.end(),
                                     [first](const Lane& lane) { return lane.bytes_per_s == first; });
  std::vector<int64_t> parts;
  for (const Lane& lane : route.lanes) {
    const double part = std::ceil(static_cast<double>(bytes) * (lane.bytes_per_s / total));
    parts.push_back(are_equal ? (bytes + num_planes - 1) / num_planes : std::min(bytes, static_cast<int64_t>(part)));
  }
  return parts;
}

Steps steps_between(const Steps& steps, uint32_t first_node, uint32_t end_node) {
  Steps part;
  const uint32_t first_hop = steps.nodes[first_node].first_hop;
  for (uint32_t n = first_node; n < end_node; ++n) {
    Steps::Node node = steps.nodes[n];
    for (uint32_t h = node.first_hop; h < node.end_hop; ++h) {
      part.hops.push_back({steps.hops[h].link, steps.hops[h].node - first_node, steps.hops[h].channel});
    }
    node.first_hop -= first_hop;
    node.end_hop -= first_hop;
    part.nodes.push_back(node);
  }
  return part;
}

}  // namespace rostam::routing
