// Packs spanning trees: of every rank k that grow from it to all others, so that together they load the fullest link as
// little as can be found. One chunk goes down each tree, so k of every rank's data is what all of them gather.
// Example, the complete graph of 4: k = 1, every rank's links to all others.
//
// Trees are laid one after the other, each the cheapest where links cost what their loads raise the sum of loads^q, and
// then taken up and laid anew, again and again, for growing q. Then every tree's links get stages, in which no link
// carries more than it does in the time of a chunk over the slowest, if possible, so that one piece of the buffer takes
// no longer than the fullest link.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace rostam::collectives {

// How a message from one rank to another goes: over links, of each a share of it.
struct TreeWay {
  int32_t src = 0;
  int32_t dst = 0;
  std::vector<int32_t> links;
  std::vector<double> shares;
};

struct TreeWays {
  int32_t num_ranks = 0;
  std::vector<TreeWay> ways;     // at most one of a pair
  std::vector<double> capacity;  // of each link
};

// The trees, root by root, as Layout::trees has them; nothing where a rank does not reach all others.
// Args: most_trees: of all roots together; each has one at least.
// Cost: O(trees x num_ranks^3) a round, some tens of rounds. Deterministic.
// Source: own; tests/collectives/test_spanning_trees.py compares with the linear program. That a packing as good as the
// cuts allow exists: Edmonds, Edge-disjoint branchings (1973).
std::optional<std::vector<std::vector<int32_t>>> pack_trees(const TreeWays& ways, int32_t most_trees);

}  // namespace rostam::collectives
