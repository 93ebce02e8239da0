// Up*/down* rules: a walk goes up any number of links, then down any number, and never up again. Links form no circle
// upwards, so packets that wait for each other form none either, with a single virtual channel.
// Source: Schroeder et al., "Autonet", IEEE JSAC 1991, section 6.6.4.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/fabric.h"

namespace rostam::fabric {

// The rule where every vertex has a height; links between vertices of one height are up towards the lower number.
// Phase 0: upwards, 1: downwards.
std::shared_ptr<const PathRule> make_up_down(std::vector<int32_t> heights);

// The rule of a breadth-first tree over what works of a fabric, from the switch farthest from accelerators, the lowest
// of them; where links that lead one way keep such walks from joining all that is connected, a two-tree rule.
// Cost: O(links).
std::shared_ptr<const PathRule> search_up_down(const Fabric& fabric);

}  // namespace rostam::fabric
