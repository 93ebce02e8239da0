// islands: switches in groups, accelerators on switches; every pair of switches of a group is joined, and each switch
// of a group has a cable to the switch of the same place in every other group. Paths go local, global, local: at most
// one local hop on either side of a global one, whatever is shorter.
#include "fabric/registry.h"

namespace rostam::fabric {

namespace {

// Phases: 0 before the global hop, 1 after one local hop, 2 after the global one, 3 after the last local hop.
class LocalGlobalLocal : public PathRule {
 public:
  LocalGlobalLocal(int32_t num_accelerators, int32_t group) : num_accelerators_(num_accelerators), group_(group) {}
  int32_t num_phases() const override { return 4; }
  int32_t next_phase(int32_t phase, const Link& link) const override {
    const int32_t src = link.src - num_accelerators_, dst = link.dst - num_accelerators_;
    if (src < 0) return phase == 0 ? 0 : -1;  // accelerators only start
    if (dst < 0) return phase;
    if (src / group_ != dst / group_) return phase <= 1 ? 2 : -1;
    return phase == 0 ? 1 : phase == 2 ? 3 : -1;
  }

 private:
  int32_t num_accelerators_, group_;
};

}  // namespace

Blueprint design_islands(const Params& params) {
  const int32_t groups = params.integer("groups"), size = params.integer("switches"), down = params.integer("down");
  const double rate = params.rate("link_bandwidth_bytes_per_s");
  const SimTime latency = params.time("link_latency_s");
  Blueprint plan;
  plan.name = "islands";
  plan.num_accelerators = groups * size * down;
  plan.num_switches = groups * size;
  const auto vertex = [&plan, size](int32_t group, int32_t place) {
    return plan.num_accelerators + group * size + place;
  };
  for (int32_t a = 0; a < plan.num_accelerators; ++a) {
    plan.add_cable(a, plan.num_accelerators + a / down, rate, latency);
  }
  for (int32_t g = 0; g < groups; ++g) {
    for (int32_t i = 0; i < size; ++i) {
      for (int32_t j = i + 1; j < size; ++j) plan.add_cable(vertex(g, i), vertex(g, j), rate, latency);
      for (int32_t h = g + 1; h < groups; ++h) plan.add_cable(vertex(g, i), vertex(h, i), rate, latency);
    }
  }
  plan.path_rule = std::make_shared<LocalGlobalLocal>(plan.num_accelerators, size);
  return plan;
}

}  // namespace rostam::fabric
