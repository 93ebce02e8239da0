#include "routing/engine_links.h"

#include <unordered_map>

namespace rostam::routing {

EngineLinks::EngineLinks(const fabric::Fabric& fabric, bool enable_bundling) {
  const std::vector<fabric::Link>& links = fabric.links();
  std::unordered_map<int32_t, int32_t> of_bundle;
  of_link.reserve(links.size());
  for (size_t i = 0; i < links.size(); ++i) {
    const int32_t fresh = static_cast<int32_t>(members.size());
    int32_t engine_link = fresh;
    if (enable_bundling && links[i].bundle >= 0) engine_link = of_bundle.emplace(links[i].bundle, fresh).first->second;
    if (engine_link == fresh) {
      members.emplace_back();
      capacities.push_back(0);
    }
    of_link.push_back(engine_link);
    capacities[static_cast<size_t>(engine_link)] += links[i].capacity_bytes_per_s;
    members[static_cast<size_t>(engine_link)].push_back(static_cast<int32_t>(i));
  }
}

}  // namespace rostam::routing
