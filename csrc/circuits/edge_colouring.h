// Edge colouring of multigraphs: no two edges of one colour meet. Colours become optical switches.
// A bipartite multigraph of maximum degree D always takes D colours (Koenig, 1916); other graphs may need more.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace rostam::circuits {

// Colours edges in the given order with 0..num_colours-1, exchanging two colours along a path where no colour is
// free at both ends. Returns -1 for an edge that no such exchange admits, which never happens in a bipartite graph
// of maximum degree <= num_colours. REQUIRES: no edge from a vertex to itself.
// `wanted`: the colour that an edge begins with, -1 for none; empty for none at all. Edges keep theirs unless an
// exchange for another one changes it. REQUIRES: edges that meet want different colours. Cost: O(edges x (colours +
// vertices)) at worst; an exchange is usually a few edges long.
std::vector<int32_t> colour_edges(int32_t num_vertices, const std::vector<std::pair<int32_t, int32_t>>& edges,
                                  int32_t num_colours, const std::vector<int32_t>& wanted = {});

}  // namespace rostam::circuits
