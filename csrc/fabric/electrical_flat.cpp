// electrical_flat: one ideal switch, one transmit and one receive port per accelerator, one end-to-end latency.
// Distance: 2 between accelerators, 1 from the switch. Source: SiP-ML 4.1, Elect-Flat.
#include "fabric/registry.h"

namespace rostam::fabric {

namespace {

class FlatDistance : public DistanceFunction {
 public:
  explicit FlatDistance(int32_t num_accelerators) : num_accelerators_(num_accelerators) {}

  int32_t distance(int32_t vertex, int32_t accelerator) const override {
    if (vertex == accelerator) return 0;
    return vertex == num_accelerators_ ? 1 : 2;
  }
  int32_t diameter() const override { return num_accelerators_ > 1 ? 2 : 0; }
  bool next_range(int32_t vertex, int32_t accelerator, int32_t& first, int32_t& last) const override {
    first = vertex == num_accelerators_ ? accelerator : num_accelerators_;
    last = first + 1;
    return true;
  }

 private:
  int32_t num_accelerators_;
};

}  // namespace

Blueprint design_electrical_flat(const Params& params) {
  Blueprint plan;
  plan.name = "electrical_flat";
  plan.num_accelerators = params.integer("num_accelerators");
  plan.num_switches = 1;
  const double port = params.rate("port_bandwidth_bytes_per_s");
  const SimTime latency = params.time("latency_s");
  const SimTime link = params.time("link_latency_s");
  // The end-to-end latency lies half on the way in and half on the way out, to the picosecond.
  const SimTime down = SimTime::from_ps(latency.ps() / 2);
  const SimTime up = latency - down;
  plan.links.reserve(2 * static_cast<size_t>(plan.num_accelerators));
  for (int32_t a = 0; a < plan.num_accelerators; ++a) {
    plan.add_cable(a, plan.num_accelerators, port, up + link);
    plan.links.back().latency = down + link;
  }
  plan.symmetries.emplace_back();  // to the next accelerator
  for (int32_t a = 0; a < plan.num_accelerators; ++a) {
    plan.symmetries.back().push_back((a + 1) % plan.num_accelerators);
  }
  plan.symmetries.back().push_back(plan.num_accelerators);
  plan.distance = std::make_shared<FlatDistance>(plan.num_accelerators);
  return plan;
}

}  // namespace rostam::fabric
