// sip_ocs: accelerators with one fibre pair to each of Q optical circuit switches. These are ports and switches only:
// circuits belong to a plan and its run (MODEL G22), see circuits.h.
// Distance: 2 between accelerators, 1 from a switch. Source: SiP-ML 3.1, SiP-OCS.
#include "fabric/registry.h"

namespace rostam::fabric {

namespace {

class SwitchesDistance : public DistanceFunction {
 public:
  explicit SwitchesDistance(int32_t num_accelerators) : num_accelerators_(num_accelerators) {}

  int32_t distance(int32_t vertex, int32_t accelerator) const override {
    if (vertex == accelerator) return 0;
    return vertex < num_accelerators_ ? 2 : 1;
  }
  int32_t diameter() const override { return num_accelerators_ > 1 ? 2 : 0; }

 private:
  int32_t num_accelerators_;
};

}  // namespace

Blueprint design_sip_ocs(const Params& params) {
  Blueprint plan;
  plan.name = "sip_ocs";
  plan.num_accelerators = params.integer("num_accelerators");
  plan.num_switches = params.integer("num_ocs");
  const double port = params.rate("link_bandwidth_bytes_per_s");
  const SimTime latency = params.time("latency_s");
  const SimTime link = params.time("link_latency_s");
  const SimTime down = SimTime::from_ps(latency.ps() / 2);
  const SimTime up = latency - down;
  for (int32_t a = 0; a < plan.num_accelerators; ++a) {
    for (int32_t k = 0; k < plan.num_switches; ++k) {
      plan.add_cable(a, plan.num_accelerators + k, port, up + link);
      plan.links.back().latency = down + link;
    }
  }
  plan.distance = std::make_shared<SwitchesDistance>(plan.num_accelerators);
  return plan;
}

}  // namespace rostam::fabric
