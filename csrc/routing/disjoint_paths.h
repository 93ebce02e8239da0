// Disjoint paths: how many of the paths that layers give a pair of switches share no cable with one another.
// Example: count_disjoint(Layers(*fabric, 4), 3)[3]: pairs with three such paths or more.
#pragma once

#include <cstdint>
#include <vector>

#include "routing/layers.h"

namespace rostam::routing {

// Ordered pairs of switches that are joined, by the most paths of theirs of which no two share a cable, those with
// `most` or more together: most + 1 counts, the first one 0. Parallel cables are one.
// REQUIRES: most >= 1. Cost: pairs x (paths^most).
std::vector<int64_t> count_disjoint(const Layers& layers, int32_t most);

}  // namespace rostam::routing
