// Two-tree rules: up*/down* where links lead one way. A walk goes towards a root by links that come nearer to it, then
// away from it by links that lead farther: two trees, one into the root and one out of it, which need not be the same
// links. A link of both may be crossed in either phase, so that each is a virtual channel; there are two.
// Vertices that reach each other share a root; a link to vertices that do not lead back begins their trees.
// Source: own, after Schroeder et al., "Autonet", IEEE JSAC 1991; tests/routing/test_one_way.py.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/fabric.h"

namespace rostam::fabric {

// The rule over what works of a fabric; it joins all that is connected. roots: all vertices that forward, the one that
// is a root first. Cost: O(links).
std::shared_ptr<const PathRule> make_two_trees(const Fabric& fabric, const std::vector<int32_t>& roots);

}  // namespace rostam::fabric
