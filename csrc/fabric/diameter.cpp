// Diameters by search: one for each set of accelerators that are alike.
#include <algorithm>

#include "fabric/alike.h"

namespace rostam::fabric {

int32_t Fabric::diameter() const {
  if (closed_form() != nullptr && failures_.accelerators.empty()) return closed_form()->diameter();
  int32_t longest = 0;
  const std::vector<int32_t> healthy = healthy_accelerators(), first = first_alike(*this);
  for (const int32_t dst : healthy) {
    if (first[static_cast<size_t>(dst)] != dst) continue;
    const std::vector<int32_t> hops = search_distances(dst);
    for (const int32_t src : healthy) {
      const int32_t here = distance_from(src, hops);
      if (here == kUnreachable) {
        ROSTAM_THROW(NoRouteError, "no path is left from accelerator " << src << " to accelerator " << dst
                                                                       << " of fabric " << name());
      }
      longest = std::max(longest, here);
    }
  }
  return longest;
}

}  // namespace rostam::fabric
