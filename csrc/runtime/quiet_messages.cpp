// Session, fourth part: ring collectives that go without messages until a message of others comes onto their links.
#include <algorithm>

#include "runtime/payload.h"
#include "runtime/session.h"

namespace rostam::runtime {

void Session::join_ring(int32_t d, int32_t slot, uint32_t occurrence, const QuietRings::Rank& rank) {
  Participation& part = participation(d, slot, occurrence);
  const QuietRings::Exchange exchange = exchange_of(d, slot, part);
  const QuietRings::Joined joined = quiet_rings_->join(rank, occurrence, exchange, queue_.now(), part.origin);
  if (joined == QuietRings::Joined::kSimulated) {
    advance(d, slot, occurrence);
    return;
  }
  part.is_quiet = true;
  if (joined == QuietRings::Joined::kWaiting) return;
  const std::vector<QuietRings::End>& ends = quiet_rings_->ends(rank.ring, occurrence);
  const std::vector<int32_t>& devices = quiet_rings_->devices(rank.ring);
  for (size_t i = 0; i < devices.size(); ++i) {
    Participation& other = participation(devices[i], slot, occurrence);
    other.quiet_end = std::max(ends[i].time, other.joined + options_.min_collective_time);
    other.quiet_origin = ends[i].origin;
    queue_.schedule(other.quiet_end, Priority::kNormal, &quiet_ends_, pack(devices[i], slot));
  }
}

QuietRings::Exchange Session::exchange_of(int32_t d, int32_t slot, const Participation& part) {
  const Instance& instance = instance_of(d, part.instance);
  const Task& task = graph_->templates[instance.template_id].tasks[part.task];
  const collectives::Schedule& schedule = *graph_->schedules[task.schedule];
  transfers_.clear();
  schedule.sends(device_of(d).slots[slot].rank, 0, transfers_);
  QuietRings::Exchange exchange;
  exchange.num_steps = schedule.shape().num_steps;
  exchange.num_chunks = transfers_.front().num_chunks;
  exchange.bytes = checked_multiply(graph_->chunk_bytes(task), exchange.num_chunks);
  exchange.wire_bytes = wire_bytes(exchange.bytes);
  exchange.iteration = instance.iteration;
  exchange.category = task.category;
  return exchange;
}

// The rank is through, unless its collective was disturbed since this was planned.
void Session::end_quietly(uint64_t device_and_slot) {
  const int32_t d = high(device_and_slot), slot = low(device_and_slot);
  SlotState& state = devices_[d].slots[slot];
  if (state.queue.empty() || !state.queue.front().is_quiet || state.queue.front().quiet_end != queue_.now()) return;
  Participation& part = state.queue.front();
  const QuietRings::Exchange exchange = exchange_of(d, slot, part);
  // Sent by this rank and received by the next one.
  const int64_t num_messages = exchange.num_steps * folding_.multiplicity[d];
  const int64_t num_bytes = checked_multiply(exchange.bytes, num_messages);
  Traffic& traffic = traffic_of(d, exchange.iteration, exchange.category);
  traffic.sent_bytes = checked_add(traffic.sent_bytes, num_bytes);
  traffic.received_bytes = checked_add(traffic.received_bytes, num_bytes);
  traffic.num_messages += num_messages;
  part.chunks_sent = exchange.num_chunks * exchange.num_steps;
  part.origin = std::move(part.quiet_origin);
  complete_collective(device_and_slot);
}

// A message of others is about to start on the ring's links: what is under way there goes on message by message.
void Session::disturb(int32_t ring) {
  for (const uint32_t occurrence : quiet_rings_->under_way(ring, queue_.now())) resume(ring, occurrence);
}

void Session::resume(int32_t ring, uint32_t occurrence) {
  const int32_t slot = quiet_rings_->slot(ring);
  const std::vector<int32_t>& devices = quiet_rings_->devices(ring);
  const QuietRings::Exchange exchange = quiet_rings_->exchange(ring, occurrence);
  const QuietRings::Moment moment = quiet_rings_->interrupt(ring, occurrence, queue_.now());
  const auto is_through = [&](size_t i) { return moment.ranks[i].step == exchange.num_steps; };
  for (size_t i = 0; i < devices.size(); ++i) {
    const int32_t d = devices[i];
    const QuietRings::Progress& rank = moment.ranks[i];
    if (is_through(i)) continue;  // it ends, or has ended, as planned
    Participation& part = participation(d, slot, occurrence);
    part.ordered_arrivals = moment.ranks[i == 0 ? devices.size() - 1 : i - 1].num_delivered;
    part.is_quiet = false;
    part.quiet_origin = CriticalPath::Ref();
    if (!part.is_joined) continue;
    part.step = rank.step;
    part.is_step_started = true;
    part.pending_sends = rank.is_sending;
    part.chunks_sent = exchange.num_chunks * (rank.step + 1);
    part.origin = rank.origin;
    Traffic& traffic = traffic_of(d, exchange.iteration, exchange.category);
    traffic.sent_bytes += exchange.bytes * rank.num_sent * folding_.multiplicity[d];
    traffic.received_bytes += exchange.bytes * rank.num_delivered * folding_.multiplicity[d];
    traffic.num_messages += rank.num_sent * folding_.multiplicity[d];
    if (!rank.is_sending) continue;
    const int32_t message = new_ring_message(ring, occurrence, static_cast<int32_t>(i), rank.step);
    messages_[message].origin = rank.origin;
    Message& sending = messages_[message];
    sending.is_sending = true;
    const network::Transfer transfer = {sending.route, exchange.wire_bytes, static_cast<uint64_t>(message)};
    sending.transfer = network_->resume(transfer, rank.step_start);
  }
  for (const QuietRings::InFlight& one : moment.messages) {
    const int32_t message = new_ring_message(ring, occurrence, one.position, one.step);
    messages_[message].origin = one.origin;
    // A rank that is through counts all that it sent as received when it ends; these still come.
    if (is_through(one.position)) {
      const int32_t d = devices[one.position];
      traffic_of(d, exchange.iteration, exchange.category).received_bytes -= exchange.bytes * folding_.multiplicity[d];
    }
    queue_.schedule(one.arrival, Priority::kNormal, &late_arrivals_, static_cast<uint64_t>(message));
  }
}

int32_t Session::new_ring_message(int32_t ring, uint32_t occurrence, int32_t position, int32_t step) {
  const int32_t index = new_message();
  const QuietRings::Exchange& exchange = quiet_rings_->exchange(ring, occurrence);
  Message& message = messages_[index];
  message.source = quiet_rings_->devices(ring)[position];
  message.peer = quiet_rings_->peers(ring)[position];
  message.destination = folding_.class_of_device[message.peer];
  message.slot = quiet_rings_->slot(ring);
  message.step = step;
  message.occurrence = occurrence;
  message.bytes = exchange.bytes;
  message.is_send = message.is_sending = false;
  message.category = exchange.category;
  message.iteration = exchange.iteration;
  message.is_synchronous = false;
  message.route = route_of(message.source, message.slot, message.peer);
  return index;
}

}  // namespace rostam::runtime
