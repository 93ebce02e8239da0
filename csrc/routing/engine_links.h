// EngineLinks: the links as engines see them, each one directed link or one bundle of equal links.
#pragma once

#include <cstdint>
#include <vector>

#include "fabric/fabric.h"

namespace rostam::routing {

struct EngineLinks {
  EngineLinks(const fabric::Fabric& fabric, bool enable_bundling);

  std::vector<int32_t> of_link;               // fabric link -> engine link
  std::vector<double> capacities;             // [bytes/s], the sum over the members
  std::vector<std::vector<int32_t>> members;  // engine link -> fabric links
};

}  // namespace rostam::routing
