#include "network/link_table.h"

namespace rostam::network {

LinkTable::LinkTable(const std::vector<double>& capacities) {
  for (const double bytes_per_s : capacities) add({bytes_per_s, 0, SimTime::zero()});
}

LinkTable::LinkTable(const routing::EngineLinks& links)
    : num_plane_classes_(links.num_plane_classes), is_adaptive_(links.is_adaptive), members_(links.members) {
  links_.reserve(links.capacities.size());
  for (size_t l = 0; l < links.capacities.size(); ++l) {
    links_.push_back({links.capacities[l], links.classes[l], SimTime::zero()});
  }
}

int32_t LinkTable::add(const EngineLink& link, routing::IdSpan members) {
  links_.push_back(link);
  members_.add(members);
  return size() - 1;
}

}  // namespace rostam::network
