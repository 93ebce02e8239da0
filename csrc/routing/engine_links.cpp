#include "routing/engine_links.h"

#include <unordered_map>

namespace rostam::routing {

EngineLinks::EngineLinks(const fabric::Fabric& fabric, bool enable_bundling) {
  num_plane_classes = 1;
  const std::vector<fabric::Link>& links = fabric.links();
  std::unordered_map<int32_t, int32_t> of_bundle;
  of_link.reserve(links.size());
  capacities.reserve(links.size());
  classes.reserve(links.size());
  for (const fabric::Link& link : links) {
    const int32_t fresh = static_cast<int32_t>(capacities.size());
    int32_t engine_link = fresh;
    if (enable_bundling && link.bundle >= 0) engine_link = of_bundle.emplace(link.bundle, fresh).first->second;
    if (engine_link == fresh) {
      capacities.push_back(0);
      classes.push_back(static_cast<int32_t>(fabric.class_of(link)));
    }
    of_link.push_back(engine_link);
    capacities[static_cast<size_t>(engine_link)] += link.capacity_bytes_per_s;
  }
  members = IdLists(of_link, capacities.size());
}

void EngineLinks::append(const EngineLinks& other) {
  num_plane_classes += other.num_plane_classes;
  const auto num_fabric_links = static_cast<int32_t>(of_link.size());
  const auto num_engine_links = static_cast<int32_t>(capacities.size());
  of_link.reserve(of_link.size() + other.of_link.size());
  for (const int32_t link : other.of_link) of_link.push_back(link + num_engine_links);
  capacities.insert(capacities.end(), other.capacities.begin(), other.capacities.end());
  classes.insert(classes.end(), other.classes.begin(), other.classes.end());
  members.append(other.members, num_fabric_links);
}

}  // namespace rostam::routing
