// The cheapest directed tree from a root to all vertices of a small graph: Chu-Liu and Edmonds, by contracting circles.
// Example, three vertices: cost {.., 1, 5, .., .., 1, .., .., ..} from 0 gives parents {0, 0, 1}.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rostam::collectives {

// Costs of the links from each vertex to each, row by row: cost[from * size + to], infinity for none.
struct CostMatrix {
  int32_t size = 0;
  std::vector<double> cost;

  double at(int32_t from, int32_t to) const { return cost[place(from, to)]; }
  double& at(int32_t from, int32_t to) { return cost[place(from, to)]; }

  std::size_t place(int32_t from, int32_t to) const {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(size) + static_cast<std::size_t>(to);
  }
};

// The parent of every vertex, the root's being the root; empty where the root does not reach all. Of links that cost
// the same one from the root is taken, else the one from the vertex of the least number.
// Cost: O(size^3). Source: Edmonds, Optimum branchings (1967).
std::vector<int32_t> cheapest_tree(const CostMatrix& costs, int32_t root);

}  // namespace rostam::collectives
