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

}  // namespace rostam::routing
