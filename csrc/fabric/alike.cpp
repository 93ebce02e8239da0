#include "fabric/alike.h"

#include <map>
#include <utility>

#include "sim/interrupt.h"

namespace rostam::fabric {

namespace {

// What a path sees of hops: where they lead to, or come from, and the phases that a walk changes to on them.
void append_seen(const Fabric& fabric, const HopSpan& hops, std::vector<int32_t>& seen) {
  seen.push_back(static_cast<int32_t>(hops.size()));
  for (const Hop& hop : hops) {
    seen.push_back(hop.neighbour);
    for (int32_t phase = 0; fabric.path_rule() != nullptr && phase < fabric.num_phases(); ++phase) {
      seen.push_back(fabric.path_rule()->next_phase(phase, fabric.links()[static_cast<size_t>(hop.link)]));
    }
  }
}

}  // namespace

std::vector<int32_t> first_alike(const Fabric& fabric) {
  std::map<std::vector<int32_t>, int32_t> known;
  std::vector<int32_t> first(static_cast<size_t>(fabric.num_accelerators()), -1);
  for (const int32_t a : fabric.healthy_accelerators()) {
    poll_interrupt();
    std::vector<int32_t> seen;
    append_seen(fabric, fabric.out(a), seen);
    append_seen(fabric, fabric.in(a), seen);
    first[static_cast<size_t>(a)] = known.emplace(std::move(seen), a).first->second;
  }
  return first;
}

}  // namespace rostam::fabric
