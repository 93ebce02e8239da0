// Whether packets of PacketNetwork may wait for each other in a circle, on the paths and virtual channels of this run:
// what routing/dependencies.h proves of a routing for all pairs.
#include <sstream>
#include <unordered_set>

#include "packet/circles.h"
#include "packet/packet_network.h"

namespace rostam::packet {

std::string PacketNetwork::describe_channel(uint32_t channel) const {
  const Link& link = links_[links_.link_of(channel)];
  std::ostringstream text;
  text << links_.names()(link.src) << " -> " << links_.names()(link.dst) << " (virtual channel "
       << channel % links_.num_vcs() << ")";
  return text.str();
}

std::vector<uint32_t> PacketNetwork::find_dependency_circle() const {
  Waits waits;
  std::unordered_set<uint64_t> known;
  const auto add = [&](uint32_t held, uint32_t id) {
    const PathNode& node = pool_.node(id);
    for (uint32_t h = pool_.first_required_hop(node); h < node.first_hop + node.num_hops; ++h) {
      const uint32_t wanted = pool_.hop(h).channel;
      if (known.insert(static_cast<uint64_t>(held) << 32 | wanted).second) waits[held].push_back(wanted);
    }
  };
  for (uint32_t id = PathPool::kEnd + 1; id < pool_.num_nodes(); ++id) {
    const PathNode& node = pool_.node(id);
    for (uint32_t h = node.first_hop; h < node.first_hop + node.num_hops; ++h) {
      if (pool_.hop(h).next != PathPool::kEnd) add(pool_.hop(h).channel, pool_.hop(h).next);
    }
  }
  // Where the first leg of a detour ends, the second begins.
  for (const LegCache& cache : legs_) {
    std::unordered_map<int32_t, std::vector<uint32_t>> onwards;
    for (const auto& [ends, root] : cache.roots[1]) onwards[static_cast<int32_t>(ends >> 32)].push_back(root);
    std::vector<uint32_t> line;
    std::unordered_set<uint32_t> seen;
    for (const auto& [ends, root] : cache.roots[0]) {
      if (seen.insert(root).second) line.push_back(root);
    }
    while (!line.empty()) {
      const PathNode node = pool_.node(line.back());
      line.pop_back();
      for (uint32_t h = node.first_hop; h < node.first_hop + node.num_hops; ++h) {
        const PathHop& hop = pool_.hop(h);
        if (hop.next != PathPool::kEnd) {
          if (seen.insert(hop.next).second) line.push_back(hop.next);
          continue;
        }
        for (const uint32_t root : onwards[links_[hop.link].dst]) add(hop.channel, root);
      }
    }
  }
  return find_circle(waits, links_.num_channels());
}

std::string PacketNetwork::note() const {
  const std::vector<uint32_t> circle = find_dependency_circle();
  if (circle.empty()) return {};
  std::ostringstream text;
  text << "packets of this run did not block each other for good, but in fuller buffers may: " << circle.size()
       << " virtual channels of its paths wait for each other in a circle, from " << describe_channel(circle.front())
       << " on; routings turns, turns_adaptive and up_down have no such circle with packets.num_vcs=null";
  return text.str();
}

}  // namespace rostam::packet
