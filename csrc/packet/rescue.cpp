// What PacketNetwork does about links that stop working while packets wait for them.
#include <algorithm>

#include "packet/packet_network.h"

namespace rostam::packet {

void PacketNetwork::request_rescue() {
  if (is_rescue_due_) return;
  is_rescue_due_ = true;
  schedule(now_ps(), Kind::kRescue, 0, 0, Priority::kSolve);
}

// Whether its message is on another route now, or given up.
bool PacketNetwork::is_stale(const Packet& packet) const {
  const Message& message = messages_[packet.message];
  return message.is_cancelled || message.route != packet.route;
}

// Looks at all that waits for links that do not work: what adapts chooses again, what is stale goes on over any other
// hop that it has, or is lost.
void PacketNetwork::rescue() {
  is_rescue_due_ = false;
  std::vector<uint32_t> packets, messages, claimants;
  for (uint32_t id = 0; id < links_.size(); ++id) {
    Link& link = links_[id];
    if (link.works() || link.num_waiting == 0) continue;
    for (uint32_t channel = id * links_.num_vcs(); channel < (id + 1) * links_.num_vcs(); ++channel) {
      for (const Claims::Claim& claim : packet_claims_.claims(channel)) claimants.push_back(claim.item);
      for (const WaitLines::Item& item : lines_.items(channel)) {
        if (item.port == WaitLines::kMessages) {
          if (routes_[messages_[item.id].route].is_adaptive) messages.push_back(item.id);
          continue;
        }
        const Packet& packet = packets_[item.id];
        if (!packet.is_adaptive && !is_stale(packet)) continue;
        lines_.remove(channel, item.port, item.id);
        --link.num_waiting;
        link.waiting_bytes -= packet.bytes;
        packets.push_back(item.id);
      }
    }
  }
  for (const uint32_t id : packets) redirect(id);
  for (const uint32_t id : claimants) give_up(id);
  for (const uint32_t id : messages) {
    if (messages_[id].next_bytes == 0) continue;  // it went on meanwhile
    take_out_of_line(id);
    put_next_in_line(id);
  }
}

// A packet waits for links of which one does not work. If it is stale it is lost, unless one that it may depend on
// does: room on optional hops alone might never come.
void PacketNetwork::give_up(uint32_t id) {
  const Packet& packet = packets_[id];
  if (!packet_claims_.has(id) || !is_stale(packet)) return;
  const PathNode& node = pool_.node(packet.way.node);
  for (uint32_t hop = pool_.first_required_hop(node); hop < node.first_hop + node.num_hops; ++hop) {
    if (links_[pool_.hop(hop).link].works()) return;
  }
  leave_lines(packet_claims_, id, packet.bytes);
  lose(id);
}

// The link that a packet has chosen does not work.
void PacketNetwork::redirect(uint32_t id) {
  Packet& packet = packets_[id];
  const auto works = [this](uint32_t hop) { return links_[pool_.hop(hop).link].works(); };
  if (packet.is_adaptive) packet.hop = pick(packet.way.node, true);
  if (!works(packet.hop) && is_stale(packet)) {
    const PathNode& node = pool_.node(packet.way.node);
    for (uint32_t hop = node.first_hop; hop < node.first_hop + node.num_hops; ++hop) {
      if (works(hop)) packet.hop = hop;
    }
    if (!works(packet.hop)) return lose(id);
  }
  if (works(packet.hop)) return approach(id);
  push_in_line(id);
}

// Its message sends as much again, unless it was cancelled.
void PacketNetwork::lose(uint32_t id) {
  const Packet packet = packets_[id];
  free_packet(id);
  leave_buffer(packet.channel_in, packet.bytes, now_ps());
  Message& message = messages_[packet.message];
  const RouteState& route = routes_[packet.route];
  lost_.push_back({static_cast<int32_t>(links_.link_of(packet.channel_in)),
                   message.is_cancelled ? route.dst : route.src, static_cast<double>(packet.bytes)});
  message.in_flight -= packet.bytes;
  if (message.is_cancelled) return finish_if_over(packet.message);
  message.left += packet.bytes;
  put_next_in_line(packet.message);
}

}  // namespace rostam::packet
