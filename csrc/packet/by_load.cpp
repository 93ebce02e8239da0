// What goes by load in PacketNetwork: packets, and messages' next packets, wait for all of their next hops at once
// (Claims) and take the first that has room; of several at one moment the one whose buffer is the least taken.
#include <algorithm>

#include "packet/packet_network.h"

namespace rostam::packet {

// When a packet may be sent on over any of its hops without sending faster than it comes in.
int64_t PacketNetwork::earliest_ps(const Packet& packet) const {
  const PathNode& node = pool_.node(packet.way.node);
  int64_t latest = 0;
  for (uint32_t hop = node.first_hop; hop < node.first_hop + node.num_hops; ++hop) {
    const Link& link = links_[pool_.hop(hop).link];
    if (link.works()) latest = std::max(latest, packet.tail_ps - links_.transmit_ps(link, packet.bytes));
  }
  return latest;
}

// A packet can be passed on: at once, or when the first of its hops has room.
void PacketNetwork::claim(uint32_t id) {
  Packet& packet = packets_[id];
  const int64_t earliest = earliest_ps(packet);
  if (earliest > now_ps()) return schedule(earliest, Kind::kLine, id);
  const uint32_t port = links_.link_of(packet.channel_in), hop = free_hop(port, id, packet.way.node);
  if (hop == kNone) return stand(port, id, packet.way.node, packet.bytes);
  packet.hop = hop;
  pass_on(id);
}

// The same of a message's next packet.
void PacketNetwork::claim_for_message(uint32_t id) {
  Message& message = messages_[id];
  const uint32_t node = message.way.node, hop = free_hop(WaitLines::kMessages, id, node);
  if (hop == kNone) return stand(WaitLines::kMessages, id, node, message.next_bytes);
  message.hop = hop;
  start_next(id);
}

// The least loaded of the hops that may be taken at once, ahead of no others; kNone if there is none.
uint32_t PacketNetwork::free_hop(uint32_t port, uint32_t id, uint32_t at) {
  PathNode& node = pool_.node(at);
  const uint32_t turn = node.turn++ % node.num_hops;
  uint32_t best = kNone;
  int64_t least = kNever, next_ps = kNever;
  for (uint32_t k = 0; k < node.num_hops; ++k) {
    const uint32_t hop = node.first_hop + (turn + k) % node.num_hops;
    const PathHop& way = pool_.hop(hop);
    const Link& link = links_[way.link];
    if (!link.works() || link.num_waiting > 0 || link.free_at_ps > now_ps()) continue;
    const int64_t taken = credits_.taken(way.channel, now_ps());
    if (taken >= least || !may_go(way.channel, port, id, next_ps)) continue;
    least = taken;
    best = hop;
  }
  return best;
}

// In line for every hop of a node.
void PacketNetwork::stand(uint32_t port, uint32_t id, uint32_t at, int64_t bytes) {
  Claims& claims = claims_of(port);
  const PathNode node = pool_.node(at);
  const uint32_t end = node.first_hop + node.num_hops;
  const uint32_t first_required = pool_.first_required_hop(node);
  bool works = false;
  for (uint32_t hop = node.first_hop; hop < end; ++hop) {
    const PathHop& way = pool_.hop(hop);
    works = works || (hop >= first_required && links_[way.link].works());
    claims.stand(id, hop, way.channel, port);
    ++links_[way.link].num_waiting;
    links_[way.link].waiting_bytes += bytes;
  }
  if (!works) request_rescue();
  for (uint32_t hop = node.first_hop; hop < end && claims.has(id); ++hop) serve(pool_.hop(hop).link);
}

void PacketNetwork::leave_lines(Claims& claims, uint32_t id, int64_t bytes) {
  claims.leave(id, [&](uint32_t channel) {
    Link& link = links_[links_.link_of(channel)];
    --link.num_waiting;
    link.waiting_bytes -= bytes;
  });
}

// Starts the next of those that claim channels of a link, if one may go.
bool PacketNetwork::serve_claims(uint32_t id, Claims& claims, int64_t& next_ps) {
  if (claims.is_empty()) return false;
  for (uint32_t k = 0; k < links_.num_vcs(); ++k) {
    const uint32_t vc = (links_[id].next_vc + k) % links_.num_vcs();
    const uint32_t channel = id * links_.num_vcs() + vc;
    if (claims.is_empty(channel)) continue;
    const Claims::Claim claim =
        claims.take(channel, [&](uint32_t port, uint32_t item) { return may_go(channel, port, item, next_ps); });
    if (claim.item == kNone) continue;
    const bool is_message = claim.port == WaitLines::kMessages;
    const int64_t bytes = is_message ? messages_[claim.item].next_bytes : packets_[claim.item].bytes;
    links_[id].next_vc = vc + 1;
    --links_[id].num_waiting;
    links_[id].waiting_bytes -= bytes;
    leave_lines(claims, claim.item, bytes);
    if (is_message) {
      messages_[claim.item].hop = claim.hop;
      start_next(claim.item);
    } else {
      packets_[claim.item].hop = claim.hop;
      pass_on(claim.item);
    }
    return true;
  }
  return false;
}

}  // namespace rostam::packet
