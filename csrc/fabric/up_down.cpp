#include "fabric/up_down.h"

#include <algorithm>
#include <utility>

#include "fabric/two_trees.h"

namespace rostam::fabric {

namespace {

class UpDown : public PathRule {
 public:
  explicit UpDown(std::vector<int32_t> heights) : heights_(std::move(heights)) {}
  int32_t num_phases() const override { return 2; }
  int32_t next_phase(int32_t phase, const Link& link) const override {
    const int32_t from = heights_[static_cast<size_t>(link.src)], to = heights_[static_cast<size_t>(link.dst)];
    const bool is_up = from != to ? to > from : link.dst < link.src;
    if (!is_up) return 1;
    return phase == 0 ? 0 : -1;
  }

 private:
  std::vector<int32_t> heights_;
};

constexpr int32_t kLowest = -(1 << 30);  // accelerators that forward nothing hang below all others

// Whether links lead upwards from all vertices except the roots, and none from one root's part to another's: then walks
// up to the root and down again join all that is connected.
bool joins_all(const Fabric& fabric, const std::vector<int32_t>& heights, const std::vector<int32_t>& root_of) {
  for (int32_t v = 0; v < fabric.num_vertices(); ++v) {
    const auto at = static_cast<size_t>(v);
    if (heights[at] == kLowest) continue;
    bool leads_up = heights[at] == 0;
    for (const Hop& hop : fabric.out(v)) {
      const auto there = static_cast<size_t>(hop.neighbour);
      if (heights[there] == kLowest) continue;
      if (root_of[there] != root_of[at]) return false;
      leads_up = leads_up || heights[there] > heights[at] || (heights[there] == heights[at] && hop.neighbour < v);
    }
    if (!leads_up) return false;
  }
  return true;
}

// Hops from the nearest accelerator, of vertices that forward; accelerators that do not are left out.
std::vector<int32_t> tiers_of(const Fabric& fabric) {
  std::vector<int32_t> tiers(static_cast<size_t>(fabric.num_vertices()), -1);
  std::vector<int32_t> queue;
  for (int32_t a = 0; a < fabric.num_accelerators(); ++a) {
    tiers[static_cast<size_t>(a)] = 0;
    queue.push_back(a);
  }
  for (size_t next = 0; next < queue.size(); ++next) {
    for (const Hop& hop : fabric.out(queue[next])) {
      int32_t& tier = tiers[static_cast<size_t>(hop.neighbour)];
      if (tier >= 0) continue;
      tier = tiers[static_cast<size_t>(queue[next])] + 1;
      queue.push_back(hop.neighbour);
    }
  }
  return tiers;
}

}  // namespace

std::shared_ptr<const PathRule> make_up_down(std::vector<int32_t> heights) {
  return std::make_shared<UpDown>(std::move(heights));
}

std::shared_ptr<const PathRule> search_up_down(const Fabric& fabric) {
  const std::vector<int32_t> tiers = tiers_of(fabric);
  std::vector<int32_t> roots;
  for (int32_t v = 0; v < fabric.num_vertices(); ++v) {
    if (fabric.can_forward(v)) roots.push_back(v);
  }
  std::stable_sort(roots.begin(), roots.end(), [&tiers](int32_t a, int32_t b) {
    return tiers[static_cast<size_t>(a)] > tiers[static_cast<size_t>(b)];
  });
  std::vector<int32_t> heights(static_cast<size_t>(fabric.num_vertices()), kLowest);
  std::vector<int32_t> root_of(heights.size(), -1);
  std::vector<int32_t> queue;
  for (const int32_t root : roots) {  // each further root is of a part that the ones before do not reach
    if (heights[static_cast<size_t>(root)] != kLowest) continue;
    heights[static_cast<size_t>(root)] = 0;
    root_of[static_cast<size_t>(root)] = root;
    queue.assign(1, root);
    for (size_t next = 0; next < queue.size(); ++next) {
      for (const Hop& hop : fabric.out(queue[next])) {
        int32_t& height = heights[static_cast<size_t>(hop.neighbour)];
        if (height != kLowest || !fabric.can_forward(hop.neighbour)) continue;
        height = heights[static_cast<size_t>(queue[next])] - 1;
        root_of[static_cast<size_t>(hop.neighbour)] = root;
        queue.push_back(hop.neighbour);
      }
    }
  }
  if (!joins_all(fabric, heights, root_of)) return make_two_trees(fabric, roots);
  return make_up_down(std::move(heights));
}

}  // namespace rostam::fabric
