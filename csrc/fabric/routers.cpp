#include "fabric/routers.h"

namespace rostam::fabric {

Blueprint design_routers(const char* name, int32_t num_switches, int32_t per_switch, const Params& params) {
  Blueprint plan;
  plan.name = name;
  plan.num_accelerators = num_switches * per_switch;
  plan.num_switches = num_switches;
  plan.forward_latency = params.time("switch_latency_s");
  for (int32_t a = 0; a < plan.num_accelerators; ++a) {
    plan.add_cable(a, plan.num_accelerators + a / per_switch, params.rate("link_bandwidth_bytes_per_s"),
                   params.time("link_latency_s"));
  }
  return plan;
}

}  // namespace rostam::fabric
