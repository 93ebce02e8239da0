#include "fabric/two_trees.h"

#include <algorithm>
#include <utility>

namespace rostam::fabric {

namespace {

constexpr int32_t kNone = -1;

// What the rule knows of a vertex.
struct Standing {
  int32_t part = kNone;   // vertices that reach each other; kNone: an accelerator that forwards nothing
  int32_t to_root = 0;    // hops within the part
  int32_t from_root = 0;  // hops within the part
};

class TwoTrees : public PathRule {
 public:
  explicit TwoTrees(std::vector<Standing> vertices) : vertices_(std::move(vertices)) {}
  int32_t num_phases() const override { return 2; }
  int32_t next_phase(int32_t phase, const Link& link) const override {
    const Standing& from = vertices_[static_cast<size_t>(link.src)];
    const Standing& to = vertices_[static_cast<size_t>(link.dst)];
    if (from.part != to.part || from.part == kNone) return 0;
    const bool is_nearer = to.to_root != from.to_root ? to.to_root < from.to_root : link.dst < link.src;
    if (phase == 0 && is_nearer) return 0;
    const bool is_farther = to.from_root != from.from_root ? to.from_root > from.from_root : link.dst > link.src;
    return is_farther ? 1 : -1;
  }

 private:
  std::vector<Standing> vertices_;
};

class Search {
 public:
  Search(const Fabric& fabric, const std::vector<int32_t>& roots)
      : fabric_(fabric), roots_(roots), vertices_(static_cast<size_t>(fabric.num_vertices())) {}

  std::vector<Standing> run() {
    find_parts();
    std::vector<uint8_t> has_root(vertices_.size(), 0);
    for (const int32_t root : roots_) {
      uint8_t& is_done = has_root[static_cast<size_t>(vertices_[static_cast<size_t>(root)].part)];
      if (std::exchange(is_done, uint8_t{1}) != 0) continue;
      measure(root, true, &Standing::from_root);
      measure(root, false, &Standing::to_root);
    }
    return std::move(vertices_);
  }

 private:
  // Parts, by a search along the links that orders vertices by its ends and one against them (Kosaraju, Sharir).
  void find_parts() {
    const std::vector<int32_t> ended = in_order_of_ends();
    std::vector<int32_t> stack;
    int32_t num_parts = 0;
    for (size_t i = ended.size(); i-- > 0;) {
      if (vertices_[static_cast<size_t>(ended[i])].part != kNone) continue;
      const int32_t part = num_parts++;
      vertices_[static_cast<size_t>(ended[i])].part = part;
      stack.assign(1, ended[i]);
      while (!stack.empty()) {
        const int32_t vertex = stack.back();
        stack.pop_back();
        for (const Hop& hop : fabric_.in(vertex)) {
          int32_t& found = vertices_[static_cast<size_t>(hop.neighbour)].part;
          if (found != kNone || !fabric_.can_forward(hop.neighbour)) continue;
          found = part;
          stack.push_back(hop.neighbour);
        }
      }
    }
  }

  std::vector<int32_t> in_order_of_ends() const {
    std::vector<uint8_t> is_seen(vertices_.size(), 0);
    std::vector<int32_t> ended;
    std::vector<std::pair<int32_t, size_t>> stack;  // a vertex, and the hops that were taken from it
    for (const int32_t root : roots_) {
      if (is_seen[static_cast<size_t>(root)] != 0) continue;
      is_seen[static_cast<size_t>(root)] = 1;
      stack.emplace_back(root, 0);
      while (!stack.empty()) {
        auto& [vertex, taken] = stack.back();
        const HopSpan hops = fabric_.out(vertex);
        if (taken == static_cast<size_t>(hops.size())) {
          ended.push_back(vertex);
          stack.pop_back();
          continue;
        }
        const int32_t next = hops.first[taken++].neighbour;
        if (is_seen[static_cast<size_t>(next)] != 0 || !fabric_.can_forward(next)) continue;
        is_seen[static_cast<size_t>(next)] = 1;
        stack.emplace_back(next, 0);
      }
    }
    return ended;
  }

  // Hops from a root to all of its part, or to the root from there.
  void measure(int32_t root, bool is_from_root, int32_t Standing::* hops_of) {
    const int32_t part = vertices_[static_cast<size_t>(root)].part;
    std::vector<int32_t> queue(1, root);
    for (size_t next = 0; next < queue.size(); ++next) {
      const int32_t hops = vertices_[static_cast<size_t>(queue[next])].*hops_of + 1;
      for (const Hop& hop : is_from_root ? fabric_.out(queue[next]) : fabric_.in(queue[next])) {
        Standing& there = vertices_[static_cast<size_t>(hop.neighbour)];
        if (there.part != part || hop.neighbour == root || there.*hops_of != 0) continue;
        there.*hops_of = hops;
        queue.push_back(hop.neighbour);
      }
    }
  }

  const Fabric& fabric_;
  const std::vector<int32_t>& roots_;
  std::vector<Standing> vertices_;
};

}  // namespace

std::shared_ptr<const PathRule> make_two_trees(const Fabric& fabric, const std::vector<int32_t>& roots) {
  return std::make_shared<TwoTrees>(Search(fabric, roots).run());
}

}  // namespace rostam::fabric
