// improve_relays: circuits that are set once, moved about until what is relayed loads the busiest of them less.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "circuits/demand.h"

namespace rostam::circuits {

// Model: two circuits a -> b and c -> d become a -> d and c -> b where that takes load off the busiest one or, if it
// does not, off all circuits by the sum of their squares; drawn with `seed`, as long as num_steps steps over circuits
// last. What is given stays where the longer ways of what is found add a larger share to all circuits than the busiest
// one loses. REQUIRES: the circuits, sources and destinations, reach all of the demand. Source: own;
// tests/circuits/test_relay_search.py compares with all settings of four accelerators.
std::vector<std::pair<int32_t, int32_t>> improve_relays(const Demand& demand,
                                                        std::vector<std::pair<int32_t, int32_t>> circuits,
                                                        int64_t num_steps, uint64_t seed);

}  // namespace rostam::circuits
