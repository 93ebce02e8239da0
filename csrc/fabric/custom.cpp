// custom: the user's own list of cables (duplex) or directed links; distances by breadth-first search.
#include "fabric/registry.h"

namespace rostam::fabric {

Blueprint design_custom(const Params& params) {
  Blueprint plan;
  plan.name = "custom";
  plan.num_accelerators = params.integer("num_accelerators");
  plan.num_switches = params.integer("num_switches");
  plan.accelerators_forward = params.integer("accelerators_forward") != 0;
  plan.forward_latency = params.time("switch_latency_s");
  const std::vector<int32_t> src = params.integers("src");
  const std::vector<int32_t> dst = params.integers("dst");
  const std::vector<double>& bandwidth = params.numbers("bandwidth_bytes_per_s");
  const std::vector<double>& latency = params.numbers("latency_s");
  ROSTAM_CHECK(dst.size() == src.size() && bandwidth.size() == src.size() && latency.size() == src.size(),
               "columns of a custom fabric differ in length");
  const bool is_duplex = params.integer("duplex") != 0;
  for (size_t i = 0; i < src.size(); ++i) {
    const SimTime delay = SimTime::from_seconds(latency[i]);
    if (is_duplex) {
      plan.add_cable(src[i], dst[i], bandwidth[i], delay);
    } else {
      plan.add_link(src[i], dst[i], bandwidth[i], delay);
    }
  }
  return plan;
}

}  // namespace rostam::fabric
