// Packets of PacketNetwork that go by load: each waits for all of its next hops at once (Claims) and takes the first
// that has room; of several at one moment the least loaded. Messages choose as those of routing adaptive do.
#include <algorithm>

#include "packet/packet_network.h"

namespace rostam::packet {

// When a packet may be sent on over any of its hops without sending faster than it comes in.
int64_t PacketNetwork::earliest_ps(const Packet& packet) const {
  const PathNode& node = pool_.node(packet.way.node);
  int64_t latest = 0;
  for (uint32_t hop = node.first_hop; hop < node.first_hop + node.num_hops; ++hop) {
    const Link& link = links_[pool_.hop(hop).link];
    if (link.bytes_per_s > 0) latest = std::max(latest, packet.tail_ps - links_.transmit_ps(link, packet.bytes));
  }
  return latest;
}

// A packet can be passed on: at once, or when the first of its hops has room.
void PacketNetwork::claim(uint32_t id) {
  Packet& packet = packets_[id];
  const int64_t earliest = earliest_ps(packet);
  if (earliest > now_ps()) return schedule(earliest, Kind::kLine, id);
  const uint32_t hop = free_hop(id);
  if (hop != kNone) {
    packet.hop = hop;
    return pass_on(id);
  }
  stand_in_lines(id);
}

// The least loaded of its hops that it may take at once, without waiting for others; kNone if there is none.
uint32_t PacketNetwork::free_hop(uint32_t id) {
  const Packet& packet = packets_[id];
  PathNode& node = pool_.node(packet.way.node);
  const uint32_t port = links_.link_of(packet.channel_in), turn = node.turn++ % node.num_hops;
  uint32_t best = kNone;
  int64_t least = kNever, next_ps = kNever;
  for (uint32_t k = 0; k < node.num_hops; ++k) {
    const uint32_t hop = node.first_hop + (turn + k) % node.num_hops;
    const PathHop& way = pool_.hop(hop);
    const Link& link = links_[way.link];
    if (link.bytes_per_s <= 0 || link.num_waiting > 0 || link.free_at_ps > now_ps()) continue;
    const int64_t taken = credits_.taken(way.channel, now_ps());
    if (taken >= least || !may_go(way.channel, port, id, next_ps)) continue;
    least = taken;
    best = hop;
  }
  return best;
}

void PacketNetwork::stand_in_lines(uint32_t id) {
  const Packet& packet = packets_[id];
  const PathNode node = pool_.node(packet.way.node);
  const uint32_t port = links_.link_of(packet.channel_in), end = node.first_hop + node.num_hops;
  bool is_dead = true;
  for (uint32_t hop = node.first_hop; hop < end; ++hop) {
    const PathHop& way = pool_.hop(hop);
    is_dead = is_dead && links_[way.link].bytes_per_s <= 0;
    claims_.stand(id, hop, way.channel, port);
    ++links_[way.link].num_waiting;
    links_[way.link].waiting_bytes += packet.bytes;
  }
  packets_[id].hop = node.first_hop;
  if (is_dead) request_rescue();
  for (uint32_t hop = node.first_hop; hop < end && claims_.has(id); ++hop) serve(pool_.hop(hop).link);
}

void PacketNetwork::leave_lines(uint32_t id) {
  const int64_t bytes = packets_[id].bytes;
  claims_.leave(id, [&](uint32_t channel) {
    Link& link = links_[links_.link_of(channel)];
    --link.num_waiting;
    link.waiting_bytes -= bytes;
  });
}

// Starts the next of the packets that claim a channel, if one may go.
bool PacketNetwork::serve_claims(uint32_t channel, int64_t& next_ps) {
  const Claims::Claim claim =
      claims_.take(channel, [&](uint32_t port, uint32_t packet) { return may_go(channel, port, packet, next_ps); });
  if (claim.packet == kNone) return false;
  Packet& packet = packets_[claim.packet];
  Link& link = links_[links_.link_of(channel)];
  --link.num_waiting;
  link.waiting_bytes -= packet.bytes;
  leave_lines(claim.packet);
  packet.hop = claim.hop;
  pass_on(claim.packet);
  return true;
}

}  // namespace rostam::packet
