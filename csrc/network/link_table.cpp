#include "network/link_table.h"

#include <utility>

namespace rostam::network {

LinkTable::LinkTable(const std::vector<double>& capacities) {
  for (const double bytes_per_s : capacities) add({bytes_per_s, 0, SimTime::zero()});
}

LinkTable::LinkTable(const fabric::Fabric& fabric, const routing::EngineLinks& links) {
  for (size_t l = 0; l < links.capacities.size(); ++l) {
    const std::vector<int32_t>& members = links.members[l];
    const fabric::Link& first = fabric.links()[static_cast<size_t>(members.front())];
    add({links.capacities[l], static_cast<int32_t>(fabric.class_of(first)), SimTime::zero()}, members);
  }
}

int32_t LinkTable::add(const EngineLink& link, std::vector<int32_t> members) {
  links_.push_back(link);
  members_.push_back(std::move(members));
  return size() - 1;
}

}  // namespace rostam::network
