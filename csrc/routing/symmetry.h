// Maps of a fabric onto itself (fabric::Blueprint::symmetries): where they take engine links, and what they take to
// each other. Example: if (auto image = image_of_links(fabric, links, map)) for (l...) orbits.join(l, (*image)[l]);
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "routing/engine_links.h"

namespace rostam::routing {

// Where a map of all vertices takes each engine link; empty if it does not take working links to equal ones, and
// bundles to bundles. Cost: O(links).
std::optional<std::vector<int32_t>> image_of_links(const fabric::Fabric& fabric, const EngineLinks& links,
                                                   const std::vector<int32_t>& map);

// What maps take to each other is of one orbit.
class Orbits {
 public:
  explicit Orbits(size_t size);

  void join(int32_t a, int32_t b) { parent_[find(std::max(find(a), find(b)))] = find(std::min(find(a), find(b))); }
  // The first one of the orbit.
  int32_t find(int32_t a) {
    for (; parent_[a] != a; a = parent_[a]) parent_[a] = parent_[parent_[a]];
    return a;
  }
  // Of each one; orbits are numbered 0, 1, ... in order of their first members.
  std::vector<int32_t> numbers(int32_t& count);

 private:
  std::vector<int32_t> parent_;
};

}  // namespace rostam::routing
