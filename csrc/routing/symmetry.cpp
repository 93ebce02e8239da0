#include "routing/symmetry.h"

#include <numeric>
#include <utility>

namespace rostam::routing {

namespace {

bool is_same(const fabric::Fabric& fabric, int32_t link, int32_t other) {
  const fabric::Link &a = fabric.links()[link], &b = fabric.links()[other];
  return a.capacity_bytes_per_s == b.capacity_bytes_per_s && a.latency == b.latency &&
         fabric.class_of(a) == fabric.class_of(b);
}

// Whether the map takes vertices to vertices, no two of them to one.
bool is_permutation(const std::vector<int32_t>& map, int32_t num_vertices) {
  if (map.size() != static_cast<size_t>(num_vertices)) return false;
  std::vector<uint8_t> is_taken(map.size(), 0);
  for (const int32_t v : map) {
    if (v < 0 || v >= num_vertices || std::exchange(is_taken[v], 1) != 0) return false;
  }
  return true;
}

}  // namespace

std::optional<std::vector<int32_t>> image_of_links(const fabric::Fabric& fabric, const EngineLinks& links,
                                                   const std::vector<int32_t>& map) {
  if (!is_permutation(map, fabric.num_vertices())) return std::nullopt;
  std::vector<int32_t> image(links.members.size(), -1), num_mapped(links.members.size(), 0);
  std::vector<fabric::Hop> moved;
  for (int32_t v = 0; v < fabric.num_vertices(); ++v) {
    if (fabric.can_forward(v) != fabric.can_forward(map[v])) return std::nullopt;
    const fabric::HopSpan from = fabric.out(v), to = fabric.out(map[v]);
    if (from.size() != to.size()) return std::nullopt;
    moved.clear();
    for (const fabric::Hop& hop : from) moved.push_back({hop.link, map[hop.neighbour]});
    std::stable_sort(moved.begin(), moved.end(),
                     [](const fabric::Hop& a, const fabric::Hop& b) { return a.neighbour < b.neighbour; });
    for (size_t k = 0; k < moved.size(); ++k) {
      const fabric::Hop& other = *(to.begin() + k);
      if (moved[k].neighbour != other.neighbour || !is_same(fabric, moved[k].link, other.link)) return std::nullopt;
      int32_t& target = image[links.of_link[moved[k].link]];
      if (target >= 0 && target != links.of_link[other.link]) return std::nullopt;
      target = links.of_link[other.link];
      ++num_mapped[links.of_link[moved[k].link]];
    }
  }
  for (size_t l = 0; l < image.size(); ++l) {  // bundles onto bundles of as many working links
    if (image[l] < 0) image[l] = static_cast<int32_t>(l);
    if (num_mapped[l] != num_mapped[image[l]] || links.capacities[l] != links.capacities[image[l]]) return std::nullopt;
  }
  return image;
}

Orbits::Orbits(size_t size) : parent_(size) { std::iota(parent_.begin(), parent_.end(), 0); }

std::vector<int32_t> Orbits::numbers(int32_t& count) {
  std::vector<int32_t> number(parent_.size(), -1);
  count = 0;
  for (size_t a = 0; a < parent_.size(); ++a) {
    const int32_t first = find(static_cast<int32_t>(a));
    number[a] = first == static_cast<int32_t>(a) ? count++ : number[first];
  }
  return number;
}

}  // namespace rostam::routing
