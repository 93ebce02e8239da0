#include "network/link_table.h"

#include "sim/errors.h"

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

LinkTable LinkTable::for_packets(const routing::RouteTable& routes, bool may_fail) {
  LinkTable table(routes.links());
  table.num_virtual_channels_ = routes.num_virtual_channels(may_fail);
  auto next = table.links_.begin();
  for (const routing::PlaneClass& planes : routes.planes()) {
    const fabric::Fabric& fabric = planes.policy->fabric();
    if (may_fail && !planes.policy->has_same_channels_after_failures()) table.may_take_more_channels_ = true;
    table.names_ = {fabric.num_accelerators(), fabric.num_switches()};
    const routing::IdLists& lists = planes.policy->links().members;
    for (size_t list = 0; list < lists.size(); ++list, ++next) {
      const routing::IdSpan members = lists[list];
      if (members.size() != 1) {
        ROSTAM_THROW(ConfigError, "packets go over single links, but " << members.size()
                                                                       << " of them are bundled; make routes without "
                                                                          "bundles");
      }
      const fabric::Link& link = fabric.links()[static_cast<size_t>(members.front())];
      next->src = link.src;
      next->dst = link.dst;
      next->latency = link.latency;
      next->forward_latency = fabric.forward_latency();
      next->is_exit = !fabric.can_forward(link.dst);
    }
  }
  return table;
}

std::string VertexNames::operator()(int32_t vertex) const {
  if (vertex < num_accelerators) return "accelerator " + std::to_string(vertex);
  if (vertex < num_accelerators + num_switches) return "switch " + std::to_string(vertex - num_accelerators);
  return "vertex " + std::to_string(vertex);
}

int32_t LinkTable::add(const EngineLink& link, routing::IdSpan members) {
  links_.push_back(link);
  members_.add(members);
  return size() - 1;
}

}  // namespace rostam::network
