// EngineLinks: the links of one plane as engines see them, each one directed link or one bundle of equal links.
#pragma once

#include <cstdint>
#include <vector>

#include "fabric/fabric.h"
#include "routing/id_lists.h"

namespace rostam::routing {

struct EngineLinks {
  EngineLinks() = default;  // of no plane
  EngineLinks(const fabric::Fabric& fabric, bool enable_bundling);

  // Adds those of another plane, its fabric links numbered on.
  void append(const EngineLinks& other);

  int32_t num_plane_classes = 0;   // that were appended
  bool is_adaptive = false;        // messages are divided over their paths (Route::is_adaptive)
  std::vector<int32_t> of_link;    // fabric link -> engine link
  std::vector<double> capacities;  // [bytes/s], the sum over the members
  std::vector<int32_t> classes;    // fabric::LinkClass of the members
  IdLists members;                 // engine link -> fabric links
};

}  // namespace rostam::routing
