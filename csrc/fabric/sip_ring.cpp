// sip_ring: accelerators on two counter-rotating fibres; light goes through them without a switch. Cable 2 i is the
// clockwise segment i -> i+1, cable 2 i + 1 the segment i+1 -> i of the other fibre. These are fibres only:
// wavelengths belong to a plan and its run (MODEL G22), see circuits.h.
// Distance: segments along the shorter way round. Source: SiP-ML 3.1, SiP-Ring.
#include <algorithm>
#include <cstdlib>

#include "fabric/registry.h"

namespace rostam::fabric {

namespace {

class RingDistance : public DistanceFunction {
 public:
  explicit RingDistance(int32_t num_accelerators) : num_accelerators_(num_accelerators) {}

  int32_t distance(int32_t vertex, int32_t accelerator) const override {
    const int32_t gap = std::abs(vertex - accelerator);
    return std::min(gap, num_accelerators_ - gap);
  }
  int32_t diameter() const override { return num_accelerators_ / 2; }

 private:
  int32_t num_accelerators_;
};

}  // namespace

Blueprint design_sip_ring(const Params& params) {
  Blueprint plan;
  plan.name = "sip_ring";
  plan.num_accelerators = params.integer("num_accelerators");
  plan.accelerators_forward = true;
  const double fibre = params.rate("fibre_bandwidth_bytes_per_s");
  const SimTime latency = params.time("link_latency_s");
  for (int32_t a = 0; plan.num_accelerators > 1 && a < plan.num_accelerators; ++a) {
    const int32_t next = (a + 1) % plan.num_accelerators;
    plan.add_link(a, next, fibre, latency);
    plan.add_link(next, a, fibre, latency);
  }
  plan.distance = std::make_shared<RingDistance>(plan.num_accelerators);
  return plan;
}

}  // namespace rostam::fabric
