#include "network/link_table.h"

#include <utility>

namespace rostam::network {

LinkTable::LinkTable(const std::vector<double>& capacities) {
  for (const double bytes_per_s : capacities) add({bytes_per_s, 0, SimTime::zero()});
}

LinkTable::LinkTable(const routing::EngineLinks& links)
    : num_plane_classes_(links.num_plane_classes), is_adaptive_(links.is_adaptive) {
  for (size_t l = 0; l < links.capacities.size(); ++l) {
    add({links.capacities[l], links.classes[l], SimTime::zero()}, links.members[l]);
  }
}

int32_t LinkTable::add(const EngineLink& link, std::vector<int32_t> members) {
  links_.push_back(link);
  members_.push_back(std::move(members));
  return size() - 1;
}

}  // namespace rostam::network
