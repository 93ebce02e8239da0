#include "collectives/arborescence.h"

#include <cmath>
#include <limits>

#include "sim/interrupt.h"

namespace rostam::collectives {

namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

size_t place(int32_t vertex) { return static_cast<size_t>(vertex); }

// The cheapest link into every vertex but the root, by where it comes from; empty where a vertex has none.
std::vector<int32_t> cheapest_into(const CostMatrix& costs, int32_t root) {
  std::vector<int32_t> from(place(costs.size), root);
  for (int32_t to = 0; to < costs.size; ++to) {
    if (to == root) continue;
    double least = costs.at(root, to);
    for (int32_t other = 0; other < costs.size; ++other) {
      if (other == to || !(costs.at(other, to) < least)) continue;
      least = costs.at(other, to);
      from[place(to)] = other;
    }
    if (least == kNone) return {};
  }
  return from;
}

// Which vertices are on one circle of these links, as marks; no mark where there is none.
std::vector<uint8_t> a_circle(const std::vector<int32_t>& from, int32_t root) {
  std::vector<int32_t> seen(from.size(), -1);
  std::vector<uint8_t> marks(from.size(), 0);
  for (int32_t start = 0; start < static_cast<int32_t>(from.size()); ++start) {
    int32_t vertex = start;
    while (vertex != root && seen[place(vertex)] < 0) {
      seen[place(vertex)] = start;
      vertex = from[place(vertex)];
    }
    if (vertex == root || seen[place(vertex)] != start) continue;
    for (; marks[place(vertex)] == 0; vertex = from[place(vertex)]) marks[place(vertex)] = 1;
    break;
  }
  return marks;
}

}  // namespace

std::vector<int32_t> cheapest_tree(const CostMatrix& costs, int32_t root) {
  poll_interrupt();
  std::vector<int32_t> from = cheapest_into(costs, root);
  if (from.empty()) return from;
  const std::vector<uint8_t> is_on = a_circle(from, root);
  // Without the circle's vertices the others are numbered anew, and the circle is the last of them.
  std::vector<int32_t> vertices;
  for (int32_t v = 0; v < costs.size; ++v) {
    if (is_on[place(v)] == 0) vertices.push_back(v);
  }
  const auto circle = static_cast<int32_t>(vertices.size());
  if (circle == costs.size) return from;
  CostMatrix smaller{circle + 1, std::vector<double>(place(circle + 1) * place(circle + 1), kNone)};
  std::vector<int32_t> enters(place(circle), -1), leaves(place(circle), -1);  // where links of others meet the circle
  int32_t new_root = 0;
  for (int32_t a = 0; a < circle; ++a) {
    const int32_t one = vertices[place(a)];
    if (one == root) new_root = a;
    for (int32_t b = 0; b < circle; ++b) smaller.at(a, b) = costs.at(one, vertices[place(b)]);
    for (int32_t v = 0; v < costs.size; ++v) {
      if (is_on[place(v)] == 0) continue;
      const double in = costs.at(one, v) - costs.at(from[place(v)], v);
      if (in < smaller.at(a, circle)) {
        smaller.at(a, circle) = in;
        enters[place(a)] = v;
      }
      if (costs.at(v, one) < smaller.at(circle, a)) {
        smaller.at(circle, a) = costs.at(v, one);
        leaves[place(a)] = v;
      }
    }
  }
  const std::vector<int32_t> found = cheapest_tree(smaller, new_root);
  if (found.empty()) return found;
  for (int32_t a = 0; a < circle; ++a) {
    const int32_t above = found[place(a)];
    from[place(vertices[place(a)])] = above == circle ? leaves[place(a)] : vertices[place(above)];
  }
  const int32_t above = found[place(circle)];
  from[place(enters[place(above)])] = vertices[place(above)];
  return from;
}

}  // namespace rostam::collectives
