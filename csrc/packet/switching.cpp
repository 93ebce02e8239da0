// How packets of PacketNetwork move: in line for links, onto them, into the buffers behind them, to their ends.
#include <algorithm>
#include <cmath>

#include "packet/packet_network.h"

namespace rostam::packet {

void PacketNetwork::on_event(uint64_t payload) {
  const auto id = static_cast<uint32_t>(payload);
  const auto kind = static_cast<Kind>(payload >> 60);
  switch (kind) {
    case Kind::kArrive:
      return arrive(id);
    case Kind::kLine:
      return put_in_line(id);
    case Kind::kWake: {
      if (links_[id].wake_ps != now_ps()) return;  // it was looked at before
      links_[id].wake_ps = kNever;
      return serve(id);
    }
    case Kind::kRescue:
      return rescue();
    default:
      break;
  }
  Message& message = messages_[id];
  if (message.version << 4 != static_cast<uint32_t>(payload >> 32) << 4) return;
  if (kind == Kind::kSent) return tell_sent(id);
  if (kind == Kind::kDelivered) return tell_delivered(id);
  message.is_due = false;
  put_next_in_line(id);
}

// Asks for memory that an event is going to look at (EventHandler::fetch_stage): a packet or link, then the place where
// the packet is, then the links behind and before it.
void PacketNetwork::fetch(uint64_t payload, uint32_t stage) const {
  const auto id = static_cast<uint32_t>(payload);
  const auto kind = static_cast<Kind>(payload >> 60);
  if (kind == Kind::kWake) {
    if (stage == 0) __builtin_prefetch(&links_[id], 1);
    if (stage == 1) lines_.fetch(id * links_.num_vcs());
    return;
  }
  if (kind != Kind::kArrive && kind != Kind::kLine) return;
  const Packet& packet = packets_[id];
  if (stage == 0) return __builtin_prefetch(&packet, 1);
  if (kind == Kind::kLine) return;
  const PathNode& node = pool_.node(packet.way.node);
  if (stage == 1) return __builtin_prefetch(&node, 1);
  const PathHop& hop = pool_.hop(node.first_hop);
  __builtin_prefetch(&hop);
  const uint32_t port = links_.link_of(packet.channel_in);
  __builtin_prefetch(&links_[port], 1);
  __builtin_prefetch(&reads_[port * static_cast<size_t>(options_.crossbar_speedup)], 1);
  credits_.fetch(packet.channel_in);
}

void PacketNetwork::schedule(int64_t at_ps, Kind kind, uint32_t id, uint32_t version, Priority priority) {
  const uint64_t high = static_cast<uint64_t>(kind) << 28 | (version & 0xFFFFFFFu);
  queue_->schedule(SimTime::from_ps(at_ps), priority, &events_, high << 32 | id);
}

// The next packet of a message chooses its first link, and waits for it.
void PacketNetwork::put_next_in_line(uint32_t id) {
  Message& message = messages_[id];
  if (message.left == 0 || message.next_bytes > 0 || message.is_due) return;
  if (message.next_ps > now_ps()) {
    message.is_due = true;
    return schedule(message.next_ps, Kind::kNext, id, message.version);
  }
  RouteState& route = routes_[message.route];
  draw_way(route, names_[message.route], message.way);
  message.next_bytes = std::min(options_.packet_bytes, message.left);
  if (route.is_by_load) return claim_for_message(id);
  message.hop = choose(message.way, route.is_adaptive);
  const PathHop& hop = pool_.hop(message.hop);
  lines_.push(hop.channel, WaitLines::kMessages, id);
  ++links_[hop.link].num_waiting;
  links_[hop.link].waiting_bytes += message.next_bytes;
  serve(hop.link);
}

// A packet can be passed on.
void PacketNetwork::arrive(uint32_t id) {
  Packet& packet = packets_[id];
  if (packet.is_by_load) return claim(id);
  packet.hop = choose(packet.way, packet.is_adaptive);
  if (!links_[pool_.hop(packet.hop).link].works()) return redirect(id);
  approach(id);
}

// Into line for the link that it has chosen, but not so early that it would send faster than it receives.
void PacketNetwork::approach(uint32_t id) {
  const Packet& packet = packets_[id];
  const Link& link = links_[pool_.hop(packet.hop).link];
  const int64_t earliest = packet.tail_ps - links_.transmit_ps(link, packet.bytes);
  if (earliest > now_ps()) return schedule(earliest, Kind::kLine, id);
  put_in_line(id);
}

void PacketNetwork::put_in_line(uint32_t id) {
  const Packet& packet = packets_[id];
  if (packet.is_by_load) return claim(id);
  const PathHop& hop = pool_.hop(packet.hop);
  const Link& link = links_[hop.link];
  if (!link.works()) return redirect(id);
  const bool is_next = link.num_waiting == 0 && link.free_at_ps <= now_ps();
  int64_t next_ps = kNever;
  if (is_next && may_go(hop.channel, links_.link_of(packet.channel_in), id, next_ps)) return pass_on(id);
  const uint32_t wanted = hop.link;
  push_in_line(id);
  serve(wanted);
}

void PacketNetwork::push_in_line(uint32_t id) {
  const Packet& packet = packets_[id];
  const PathHop& hop = pool_.hop(packet.hop);
  lines_.push(hop.channel, links_.link_of(packet.channel_in), id);
  ++links_[hop.link].num_waiting;
  links_[hop.link].waiting_bytes += packet.bytes;
}

// Whether the first of a port's line may start on the channel now; if not, not before `next_ps`, if that is known.
bool PacketNetwork::may_go(uint32_t channel, uint32_t port, uint32_t id, int64_t& next_ps) {
  const bool is_message = port == WaitLines::kMessages;
  const int64_t bytes = is_message ? messages_[id].next_bytes : packets_[id].bytes;
  if (credits_.free(channel, now_ps()) < bytes) {
    next_ps = std::min(next_ps, credits_.next_return_ps(channel));
    return false;
  }
  const int64_t read_end = is_message ? 0 : read_end_ps(port);
  if (read_end <= now_ps()) return true;
  next_ps = std::min(next_ps, read_end);
  return false;
}

// When the buffer behind a link may feed one output more.
int64_t PacketNetwork::read_end_ps(uint32_t link) const {
  const auto speedup = static_cast<size_t>(options_.crossbar_speedup);
  const int64_t* first = reads_.data() + link * speedup;
  return *std::min_element(first, first + speedup);
}

// Starts the next packet on a link, if it is free and one may go; else it is looked at again when that may change.
void PacketNetwork::serve(uint32_t id) {
  Link& link = links_[id];
  if (link.num_waiting == 0 || !link.works()) return;
  if (link.free_at_ps > now_ps()) return wake_at(id, link.free_at_ps);
  int64_t next_ps = kNever;
  if (serve_next(id, next_ps)) {
    if (links_[id].num_waiting > 0) wake_at(id, links_[id].free_at_ps);
  } else if (next_ps < kNever) {
    wake_at(id, next_ps);
  }
}

// Packets that go by load and others, where there are both, take turns; messages that go by load come behind them.
bool PacketNetwork::serve_next(uint32_t id, int64_t& next_ps) {
  if (packet_claims_.is_empty() && message_claims_.is_empty()) return serve_lines(id, next_ps);
  const bool is_claim_first = !links_[id].had_claim;
  links_[id].had_claim = is_claim_first;
  if (is_claim_first && serve_claims(id, packet_claims_, next_ps)) return true;
  return serve_lines(id, next_ps) || (!is_claim_first && serve_claims(id, packet_claims_, next_ps)) ||
         serve_claims(id, message_claims_, next_ps);
}

bool PacketNetwork::serve_lines(uint32_t id, int64_t& next_ps) {
  Link& link = links_[id];
  for (uint32_t k = 0; k < links_.num_vcs(); ++k) {
    const uint32_t vc = links_.num_vcs() == 1 ? 0 : (link.next_vc + k) % links_.num_vcs();
    const uint32_t channel = id * links_.num_vcs() + vc;
    if (lines_.is_empty(channel)) continue;
    const WaitLines::Item item =
        lines_.take(channel, [&](uint32_t port, uint32_t first) { return may_go(channel, port, first, next_ps); });
    if (item.id == kNone) continue;
    const bool is_message = item.port == WaitLines::kMessages;
    if (links_.num_vcs() > 1) link.next_vc = vc + 1;
    --link.num_waiting;
    link.waiting_bytes -= is_message ? messages_[item.id].next_bytes : packets_[item.id].bytes;
    if (is_message) {
      start_next(item.id);
    } else {
      pass_on(item.id);
    }
    return true;
  }
  return false;
}

void PacketNetwork::wake_at(uint32_t id, int64_t at_ps) {
  Link& link = links_[id];
  if (link.wake_ps <= at_ps) return;
  link.wake_ps = at_ps;
  schedule(at_ps, Kind::kWake, id);
}

// A packet starts on a link now. Returns when its tail has left.
int64_t PacketNetwork::occupy(uint32_t id, uint32_t channel, int64_t bytes) {
  Link& link = links_[id];
  ROSTAM_CHECK(link.free_at_ps <= now_ps(), "link " << id << " carries two packets at once");
  credits_.take(channel, bytes);
  const int64_t duration = links_.transmit_ps(link, bytes);
  link.free_at_ps = now_ps() + duration;
  links_.carry(link, bytes, duration);
  return link.free_at_ps;
}

// The next packet of a message starts on the link that it was in line for.
void PacketNetwork::start_next(uint32_t id) {
  Message& message = messages_[id];
  const PathHop hop = pool_.hop(message.hop);
  const int64_t bytes = message.next_bytes;
  const int64_t tail_ps = occupy(hop.link, hop.channel, bytes);
  message.next_bytes = 0;
  message.left -= bytes;
  message.in_flight += bytes;
  message.sent_ps = std::max(message.sent_ps, tail_ps);
  if (std::isfinite(message.rate_cap)) {
    message.next_ps = now_ps() + transmit_time(static_cast<double>(bytes), message.rate_cap).ps();
  }
  if (message.left == 0 && !message.is_sent) schedule(message.sent_ps, Kind::kSent, id, message.version);
  Way way = message.way;
  if (advance(way, message.hop)) {
    leave_buffer(hop.channel, bytes, tail_ps + links_[hop.link].latency_ps);
    land(id, bytes, tail_ps + links_[hop.link].latency_ps);
  } else {
    const uint32_t made = new_packet();
    Packet& packet = packets_[made];
    packet.way = way;
    packet.message = id;
    packet.route = message.route;
    packet.is_adaptive = routes_[packet.route].is_adaptive;
    packet.is_by_load = routes_[packet.route].is_by_load;
    packet.bytes = bytes;
    enter(made, hop, tail_ps);
  }
  put_next_in_line(id);
}

// A packet starts on the link that it has chosen, out of a buffer.
void PacketNetwork::pass_on(uint32_t id) {
  Packet& packet = packets_[id];
  const PathHop hop = pool_.hop(packet.hop);
  const int64_t bytes = packet.bytes;
  const int64_t tail_ps = occupy(hop.link, hop.channel, bytes);
  const auto speedup = static_cast<size_t>(options_.crossbar_speedup);
  int64_t* first = reads_.data() + links_.link_of(packet.channel_in) * speedup;
  *std::min_element(first, first + speedup) = tail_ps;
  leave_buffer(packet.channel_in, bytes, tail_ps);
  if (!advance(packet.way, packet.hop)) return enter(id, hop, tail_ps);
  const uint32_t message = packet.message;
  free_packet(id);
  leave_buffer(hop.channel, bytes, tail_ps + links_[hop.link].latency_ps);
  land(message, bytes, tail_ps + links_[hop.link].latency_ps);
}

// Its tail leaves a link for the buffer behind it at `tail_ps`.
void PacketNetwork::enter(uint32_t id, const PathHop& hop, int64_t tail_ps) {
  Packet& packet = packets_[id];
  const Link& link = links_[hop.link];
  packet.channel_in = hop.channel;
  packet.tail_ps = tail_ps + link.latency_ps + link.forward_ps;
  schedule(now_ps() + links_.head_ps(link, packet.bytes) + link.latency_ps + link.forward_ps, Kind::kArrive, id);
}

// Room in the buffer of a channel is free from `tail_ps` on; its sender knows a latency later.
void PacketNetwork::leave_buffer(uint32_t channel, int64_t bytes, int64_t tail_ps) {
  const uint32_t id = links_.link_of(channel);
  const Link& link = links_[id];
  const int64_t known_ps = tail_ps + link.latency_ps;
  credits_.give_back(channel, bytes, known_ps, now_ps());
  if (link.num_waiting > 0) wake_at(id, std::max(known_ps, link.free_at_ps));
}

// A packet is on its last link, and is through at `at_ps`.
void PacketNetwork::land(uint32_t id, int64_t bytes, int64_t at_ps) {
  Message& message = messages_[id];
  message.in_flight -= bytes;
  message.landed += bytes;
  message.arrived_ps = std::max(message.arrived_ps, at_ps);
  finish_if_over(id);
}

uint32_t PacketNetwork::new_packet() {
  if (free_packets_.empty()) {
    free_packets_.push_back(static_cast<uint32_t>(packets_.size()));
    packets_.emplace_back();
  }
  const uint32_t id = free_packets_.back();
  free_packets_.pop_back();
  ++num_packets_;
  return id;
}

void PacketNetwork::free_packet(uint32_t id) {
  packets_[id].bytes = 0;
  free_packets_.push_back(id);
  --num_packets_;
}

}  // namespace rostam::packet
