// Which way packets of PacketNetwork take: at their source, and at every vertex with several next hops.
#include <algorithm>
#include <memory>

#include "packet/packet_network.h"
#include "routing/waypoints.h"
#include "sim/random.h"

namespace rostam::packet {

// The beginning of a packet's way, by the route of its message.
void PacketNetwork::draw_way(RouteState& route, uint64_t name, Way& way) {
  way = Way();
  way.node = route.roots.size() == 1 ? route.roots.front() : route.roots[route.turn++ % route.roots.size()];
  const routing::Detours& detours = route.detours;
  if (detours.legs == nullptr) return;
  const std::vector<int32_t>& vertices = *detours.vertices;
  const int32_t by = vertices[mix(mix(name) + route.draws++) % vertices.size()];
  if (by == route.src || by == route.dst) return;  // minimal
  const uint32_t first = leg(detours.legs, route.src, by, 0), then = leg(detours.legs, by, route.dst, 1);
  if (detours.is_choice) {
    way.other = first;
    way.other_then = then;
  } else {
    way.node = first;
    way.then = then;
  }
}

uint32_t PacketNetwork::leg(const std::shared_ptr<const routing::Waypoints>& legs, int32_t from, int32_t to,
                            int32_t part) {
  auto cache = std::find_if(legs_.begin(), legs_.end(), [&legs](const LegCache& one) { return one.legs == legs; });
  if (cache == legs_.end()) cache = legs_.insert(legs_.end(), LegCache{legs, {}});
  const uint64_t key = static_cast<uint64_t>(from) << 32 | static_cast<uint32_t>(to);
  const auto known = cache->roots[part].find(key);
  if (known != cache->roots[part].end()) return known->second;
  std::vector<uint32_t> roots;
  pool_.add(legs->leg(from, to, part), from, to, links_, roots);
  ROSTAM_CHECK(roots.size() == 1, "a leg from vertex " << from << " to " << to << " has " << roots.size() << " graphs");
  cache->roots[part].emplace(key, roots.front());
  return roots.front();
}

// Of several minimal hops the next in turn, or, if adaptive, the least loaded one that works; those as loaded take
// turns.
uint32_t PacketNetwork::pick(uint32_t id, bool is_adaptive) {
  PathNode& node = pool_.node(id);
  if (node.num_hops == 1) return node.first_hop;
  const uint32_t turn = node.turn++ % node.num_hops;
  if (!is_adaptive) return node.first_hop + turn;
  uint32_t best = node.first_hop + turn;
  int64_t least = load(best);
  for (uint32_t k = 1; k < node.num_hops && least > 0; ++k) {
    const uint32_t place = turn + k < node.num_hops ? turn + k : turn + k - node.num_hops;
    const int64_t here = load(node.first_hop + place);
    if (here >= least) continue;
    least = here;
    best = node.first_hop + place;
  }
  return best;
}

// Bytes in line for the hop's link, and taken of the buffer behind it as far as its sender knows.
int64_t PacketNetwork::load(uint32_t hop) {
  const PathHop& way = pool_.hop(hop);
  const Link& link = links_[way.link];
  if (!link.works()) return kNever;
  return link.waiting_bytes + credits_.taken(way.channel, now_ps());
}

// UGAL-L. Source: Kim et al., ISCA 2008, section 4.2; links are those between vertices that pass packets on.
bool PacketNetwork::takes_other(const Way& way, uint32_t hop, uint32_t other_hop) {
  const int64_t here = load(hop), there = load(other_hop);
  const uint32_t then = way.other_then == kNone ? 0 : pool_.node(way.other_then).num_links;
  const double minimal = static_cast<double>(here) * pool_.node(way.node).num_links;
  return minimal > static_cast<double>(there) * (pool_.node(way.other).num_links + then);
}

// The next hop; where a packet's two ways part it keeps one of them.
uint32_t PacketNetwork::choose(Way& way, bool is_adaptive) {
  const uint32_t hop = pick(way.node, is_adaptive);
  if (way.other == kNone) return hop;
  const bool is_single = pool_.node(way.node).num_hops == 1 && pool_.node(way.other).num_hops == 1;
  const uint32_t other_hop = pick(way.other, is_adaptive);
  if (is_single && pool_.hop(hop).link == pool_.hop(other_hop).link) return hop;
  const bool is_other = takes_other(way, hop, other_hop);
  if (is_other) {
    way.node = way.other;
    way.then = way.other_then;
  }
  way.other = way.other_then = kNone;
  return is_other ? other_hop : hop;
}

void PacketNetwork::go_on(uint32_t& node, uint32_t& then) {
  if (node == PathPool::kEnd && then != kNone) {
    node = then;
    then = kNone;
  }
}

// Behind the hop. Returns whether that is the end.
bool PacketNetwork::advance(Way& way, uint32_t hop) const {
  way.node = pool_.hop(hop).next;
  go_on(way.node, way.then);
  if (way.other != kNone) {
    way.other = pool_.hop(pool_.node(way.other).first_hop).next;
    go_on(way.other, way.other_then);
  }
  return way.node == PathPool::kEnd;
}

}  // namespace rostam::packet
