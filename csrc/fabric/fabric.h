// Fabric: accelerators, switches and directed links of one plane, frozen once built.
// Vertices 0..num_accelerators-1 are accelerators, then switches. Every cable is two directed links.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/sim_time.h"

namespace rostam::fabric {

// A directed link. `bundle` joins parallel equal links that always carry equal load under spray
// (MODEL H24), e.g. all uplinks of one leaf; -1 where the link stands alone.
struct Link {
  int32_t src = 0;
  int32_t dst = 0;
  double capacity_bytes_per_s = 0;
  SimTime latency;
  int32_t bundle = -1;
};

}  // namespace rostam::fabric
