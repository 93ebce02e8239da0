// Paths: the single paths of a pair of accelerators, for whoever chooses among them.
// Example: paths_of(*policy, 0, 40, 1024).front().links.
#pragma once

#include <cstdint>
#include <vector>

#include "routing/policy.h"

namespace rostam::routing {

struct Path {
  std::vector<int32_t> links;  // engine links, from the source on
  SimTime latency;             // message overhead included
};

// The paths that messages of the pair may take whatever their hash, in the order of the vertices that they go through,
// of parallel cables in the order of their links. REQUIRES: a policy without bundles, src != dst.
// Throws: as RoutePolicy::every_path; ConfigError for more than `most`.
std::vector<Path> paths_of(const RoutePolicy& policy, int32_t src, int32_t dst, size_t most);

}  // namespace rostam::routing
