#include "routing/policy.h"

#include "sim/errors.h"
#include "sim/interrupt.h"

namespace rostam::routing {

Route RoutePolicy::every_path(int32_t src, int32_t dst) const {
  if (!is_hash_free()) ROSTAM_THROW(ConfigError, "this routing draws paths and does not say which there are");
  return route(src, dst, {0, true});
}

void RoutePolicy::add_loads(const Flows& flows, std::vector<double>& loads) const {
  InterruptPoll poll;
  for (size_t i = 0; i < flows.src.size(); ++i) {
    poll();
    add_flow(flows.src[i], flows.dst[i], flows.num_bytes[i], i, loads);
  }
}

void RoutePolicy::add_uniform_loads(const std::vector<int32_t>& members, double num_bytes,
                                    std::vector<double>& loads) const {
  uint64_t hash = 0;
  InterruptPoll poll;
  for (const int32_t src : members) {
    for (const int32_t dst : members) {
      poll();
      add_flow(src, dst, num_bytes, hash++, loads);
    }
  }
}

void RoutePolicy::add_flow(int32_t src, int32_t dst, double num_bytes, uint64_t hash,
                           std::vector<double>& loads) const {
  if (src == dst || num_bytes == 0) return;
  for (const LinkShare& part : route(src, dst, {hash, false}).links) {
    loads[static_cast<size_t>(part.link)] += part.share * num_bytes;
  }
}

}  // namespace rostam::routing
