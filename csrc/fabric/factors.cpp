// Factors of links: a fabric derived from another by making links faster or slower.
#include <cmath>
#include <unordered_map>

#include "fabric/fabric.h"

namespace rostam::fabric {

namespace {

void check_factors(const std::vector<double>& factors, size_t count, const char* kind) {
  if (factors.size() != count) {
    ROSTAM_THROW(ConfigError, "there are " << factors.size() << " " << kind << " factors for " << count << " links");
  }
  for (const double factor : factors) {
    if (factor > 0 && std::isfinite(factor)) continue;
    ROSTAM_THROW(ConfigError, "a " << kind << " factor is " << factor << "; it must be > 0 and finite");
  }
}

SimTime divided(SimTime time, double factor) {
  return factor == 1 ? time : SimTime::from_whole_ps(std::round(static_cast<double>(time.ps()) / factor));
}

}  // namespace

std::shared_ptr<const Fabric> Fabric::with_factors(const std::vector<double>& capacity,
                                                   const std::vector<double>& latency, double forward_latency) const {
  check_factors(capacity, links().size(), "bandwidth");
  check_factors(latency, links().size(), "latency");
  check_factors({forward_latency}, 1, "forwarding latency");
  auto changed = std::make_shared<Fabric>(*this);
  std::unordered_map<int32_t, const Link*> first_of;  // of every bundle
  bool are_bundles_equal = true;
  std::vector<Link>& links = changed->blueprint_.links;
  for (size_t i = 0; i < links.size(); ++i) {
    links[i].capacity_bytes_per_s *= capacity[i];
    links[i].latency = divided(links[i].latency, latency[i]);
    if (links[i].bundle < 0) continue;
    const Link& first = *first_of.try_emplace(links[i].bundle, &links[i]).first->second;
    are_bundles_equal = are_bundles_equal && first.capacity_bytes_per_s == links[i].capacity_bytes_per_s &&
                        first.latency == links[i].latency;
  }
  if (!are_bundles_equal) changed->split_bundles();
  changed->blueprint_.forward_latency = divided(blueprint_.forward_latency, forward_latency);
  return changed;
}

}  // namespace rostam::fabric
