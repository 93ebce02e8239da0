#include "packet/route_shapes.h"

#include <cstring>
#include <unordered_map>

namespace rostam::packet {

namespace {

constexpr size_t kMostLinks = 4096;  // of routes that are looked at

int64_t bits_of(double value) {
  int64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

}  // namespace

const RouteShapes::Facts& RouteShapes::of(network::RouteId route) {
  if (facts_.size() <= route) {
    facts_.resize(route + size_t{1});
    is_known_.resize(facts_.size(), 0);
  }
  if (is_known_[route] == 0) {
    facts_[route] = find(route);
    is_known_[route] = 1;
  }
  return facts_[route];
}

// Goes through the route breadth first; names are the order in which that meets them.
RouteShapes::Facts RouteShapes::find(network::RouteId id) {
  const PacketNetwork::RouteState& route = packets_.route(id);
  const PathPool& paths = packets_.paths();
  const Links& links = packets_.links();
  Facts facts;
  facts.is_adaptive = route.is_adaptive;
  std::vector<uint32_t> nodes = route.roots;
  std::unordered_map<uint32_t, int64_t> node_names{{PathPool::kEnd, -1}}, link_names;
  for (const uint32_t root : nodes) node_names.emplace(root, static_cast<int64_t>(node_names.size()) - 1);
  std::vector<int64_t> words{route.latency.ps(), route.overhead_ps, route.is_adaptive ? 1 : 0};
  for (size_t n = 0; n < nodes.size() && facts.links.size() <= kMostLinks; ++n) {
    const PathNode& node = paths.node(nodes[n]);
    words.push_back(node.num_hops);
    if (node.num_hops > 1) facts.places.push_back(nodes[n]);
    for (uint32_t h = node.first_hop; h < node.first_hop + node.num_hops; ++h) {
      const PathHop& hop = paths.hop(h);
      const auto link = link_names.emplace(hop.link, static_cast<int64_t>(link_names.size()));
      if (link.second) facts.links.push_back(hop.link);
      const auto next = node_names.emplace(hop.next, static_cast<int64_t>(nodes.size()));
      if (next.second) nodes.push_back(hop.next);
      words.insert(words.end(), {link.first->second, hop.channel % links.num_vcs(), next.first->second});
    }
  }
  facts.is_whole = route.detours.legs == nullptr && facts.links.size() <= kMostLinks;
  facts.is_plain = facts.is_whole && !route.is_by_load && route.roots.size() == 1;
  for (const uint32_t l : facts.links) {
    const Link& link = links[l];
    words.insert(words.end(), {bits_of(link.bytes_per_s), link.latency_ps, link.forward_ps});
    facts.is_plain = facts.is_plain && link.works();
  }
  if (facts.is_plain) {
    facts.shape = shapes_.emplace(std::move(words), static_cast<uint32_t>(shapes_.size())).first->second;
  }
  return facts;
}

}  // namespace rostam::packet
