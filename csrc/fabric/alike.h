// Alike: accelerators that a path cannot tell apart, such as those on one switch.
// Example: first_alike(fabric)[5] == 4: whatever is n links from accelerator 4 is so from 5.
#pragma once

#include <cstdint>
#include <vector>

#include "fabric/fabric.h"

namespace rostam::fabric {

// For every accelerator the first working one with the same hops in and out, itself if there is none before it, -1
// where it has failed. Exchanging the two takes the fabric, and its path rule, onto itself, so that others are as far
// from either. Cost: O(links of accelerators x phases).
std::vector<int32_t> first_alike(const Fabric& fabric);

}  // namespace rostam::fabric
