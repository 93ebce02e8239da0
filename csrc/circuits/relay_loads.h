// relay_loads: what pairs' circuits carry where messages of pairs without any go over those of others.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "circuits/demand.h"

namespace rostam::circuits {

// Model: every demand takes the fewest circuits, in equal parts where several lead on, hop by hop (as RelayPaths).
// joined: pairs of accelerators with circuits, each once. Returns the bytes over each of them; empty if no chain leads
// from a demand's source to its destination. Cost: O(destinations x pairs joined).
std::vector<double> relay_loads(const Demand& demand, const std::vector<std::pair<int32_t, int32_t>>& joined);

}  // namespace rostam::circuits
