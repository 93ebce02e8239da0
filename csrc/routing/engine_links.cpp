#include "routing/engine_links.h"

#include <unordered_map>
#include <utility>

namespace rostam::routing {

EngineLinks::EngineLinks(const fabric::Fabric& fabric, bool enable_bundling) {
  num_plane_classes = 1;
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
      classes.push_back(static_cast<int32_t>(fabric.class_of(links[i])));
    }
    of_link.push_back(engine_link);
    capacities[static_cast<size_t>(engine_link)] += links[i].capacity_bytes_per_s;
    members[static_cast<size_t>(engine_link)].push_back(static_cast<int32_t>(i));
  }
}

void EngineLinks::append(const EngineLinks& other) {
  num_plane_classes += other.num_plane_classes;
  const auto num_fabric_links = static_cast<int32_t>(of_link.size());
  const auto num_engine_links = static_cast<int32_t>(capacities.size());
  for (const int32_t link : other.of_link) of_link.push_back(link + num_engine_links);
  capacities.insert(capacities.end(), other.capacities.begin(), other.capacities.end());
  classes.insert(classes.end(), other.classes.begin(), other.classes.end());
  for (std::vector<int32_t> links : other.members) {
    for (int32_t& link : links) link += num_fabric_links;
    members.push_back(std::move(links));
  }
}

}  // namespace rostam::routing
