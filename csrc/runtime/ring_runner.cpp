#include "runtime/ring_runner.h"

#include <algorithm>
#include <utility>

#include "sim/checked.h"

namespace rostam::runtime {

RingRunner::RingRunner(const RunnerParts& parts, const routing::RouteTable& routes, const Footprint& footprint,
                       bool takes_relays)
    : parts_(parts),
      stepwise_(parts),
      rings_(parts.system, footprint, takes_relays,
             [&parts](int32_t d, int32_t slot, int32_t peer) {
               return parts.messenger.routes().make_route(d, slot, peer);
             }),
      relays_(parts.system, rings_.table().rings(), parts.queue, *this),
      exchanges_(parts, stepwise_, routes, takes_relays),
      lone_(parts, stepwise_, routes, rings_.table(), takes_relays),
      ends_(*this, &RingRunner::end_quietly, &RingRunner::fetch_end),
      message_chunks_(parts.system.graph->schedules.size(), 0) {
  parts.messenger.watch(*this);
}

void RingRunner::join(const TaskRef& ref, const CriticalPath::Ref& cause) {
  const int32_t slot = parts_.instances.task(ref).slot;
  const uint32_t occurrence = stepwise_.enter(ref, cause);
  const QuietRings::Rank rank = rings_.table().rank_of(ref.device, slot);
  if (exchanges_.has(ref.device, slot)) {
    exchanges_.join(ref, slot, occurrence);
  } else if (lone_.has(ref.device, slot)) {
    lone_.join(ref, slot, occurrence);
  } else if (rank.ring == RingTable::kNone) {
    stepwise_.advance(ref.device, slot, occurrence);
  } else if (rings_.ring(rank.ring).shares_links()) {
    join_relays(ref, slot, {rank.ring, rank.position, occurrence});
  } else {
    join_ring(ref, slot, occurrence, rank);
  }
}

void RingRunner::join_ring(const TaskRef& ref, int32_t slot, uint32_t occurrence, const QuietRings::Rank& rank) {
  Participation& part = parts_.participations.at(ref.device, slot, occurrence);
  const QuietRings::Joined joined = rings_.join(rank, occurrence, exchange_of(part), parts_.queue.now(), part.origin);
  if (joined == QuietRings::Joined::kSimulated) {
    stepwise_.advance(ref.device, slot, occurrence);
    return;
  }
  part.is_quiet = true;
  if (joined == QuietRings::Joined::kWaiting) return;
  const std::vector<QuietRings::End>& ends = rings_.ends(rank.ring, occurrence);
  const std::vector<int32_t>& devices = rings_.ring(rank.ring).devices;
  for (size_t i = 0; i < devices.size(); ++i) {
    Participation& other = parts_.participations.at(devices[i], slot, occurrence);
    other.quiet_end = std::max(ends[i].time, other.joined + parts_.options.min_collective_time);
    other.quiet_origin = ends[i].origin;
    parts_.queue.schedule(other.quiet_end, Priority::kNormal, &ends_, pack(devices[i], slot));
  }
}

void RingRunner::join_relays(const TaskRef& ref, int32_t slot, const RelayRef& rank) {
  Participation& part = parts_.participations.at(ref.device, slot, rank.occurrence);
  part.is_quiet = relays_.is_relay(rank.ring, rank.position);
  const bool has_relays = relays_.join(rank, exchange_of(part), part.origin);
  if (has_relays && part.is_quiet) return;
  part.is_quiet = false;
  stepwise_.advance(ref.device, slot, rank.occurrence);
}

void RingRunner::on_delivered(Message& message) {
  if (exchanges_.has(message.target, message.slot)) return exchanges_.on_delivered(message);
  if (lone_.has(message.target, message.slot) && lone_.goes_on_quietly(message)) return;
  const QuietRings::Rank& rank = rings_.table().rank_of(message.target, message.slot);
  const bool is_to_relay = rank.ring != RingTable::kNone && relays_.is_relay(rank.ring, rank.position);
  const RelayRef relay = {rank.ring, rank.position, message.occurrence};
  if (is_to_relay && relays_.takes(relay)) {
    relays_.arrive(relay, message.origin);
  } else {
    stepwise_.on_delivered(message);
  }
}

void RingRunner::on_relayed(const RelayRef& sender, int32_t step, SimTime arrival, const CriticalPath::Ref& origin) {
  const int32_t message = make_message(sender, relays_.exchange(sender), step);
  parts_.messenger[message].origin = origin;
  parts_.messenger.deliver_at(message, arrival);
}

void RingRunner::on_relay_end(const RelayRef& relay, SimTime end, const CriticalPath::Ref& origin) {
  const Ring& ring = rings_.ring(relay.ring);
  const int32_t d = ring.devices[relay.position];
  Participation& part = parts_.participations.at(d, ring.slot, relay.occurrence);
  part.quiet_end = std::max(end, part.joined + parts_.options.min_collective_time);
  part.quiet_origin = origin;
  parts_.queue.schedule(part.quiet_end, Priority::kNormal, &ends_, pack(d, ring.slot));
}

RingExchange RingRunner::exchange_of(const Participation& part) {
  const Task& task = *part.body;
  RingExchange exchange;
  exchange.num_steps = parts_.system.graph->schedules[task.schedule]->shape().num_steps;
  exchange.num_chunks = message_chunks(task.schedule);
  exchange.bytes = checked_multiply(part.chunk_bytes, exchange.num_chunks);
  exchange.protocol = task.protocol;
  const int64_t wire_bytes =
      task.protocol < 0 ? exchange.bytes : parts_.system.graph->protocols[task.protocol].wire_bytes(exchange.bytes);
  exchange.wire_bytes = parts_.messenger.carrier().wire_bytes(wire_bytes);
  exchange.iteration = part.iteration;
  exchange.category = task.category;
  return exchange;
}

// Of every message of every rank: peers and sizes are fixed, and a rank of a one-way ring receives what it sends.
int64_t RingRunner::message_chunks(int32_t schedule) {
  int64_t& chunks = message_chunks_[schedule];
  if (chunks == 0) {
    std::vector<collectives::Transfer> transfers;
    parts_.system.graph->schedules[schedule]->messages(0, 0, transfers);
    chunks = transfers.front().num_chunks;
  }
  return chunks;
}

void RingRunner::fetch_end(uint64_t device_and_slot) const {
  const int32_t d = high(device_and_slot), slot = low(device_and_slot);
  parts_.participations.fetch(d, slot);
  parts_.sink.fetch(d, slot + 1);
}

// The rank is through, unless its collective was disturbed since this was planned.
void RingRunner::end_quietly(uint64_t device_and_slot) {
  const int32_t d = high(device_and_slot), slot = low(device_and_slot);
  Participation* part = parts_.participations.front(d, slot);
  if (part == nullptr || !part->is_quiet || part->quiet_end != parts_.queue.now()) return;
  const RingExchange exchange = exchange_of(*part);
  // Sent by this rank and received by the next one.
  parts_.ledger.count_sent(d, exchange.iteration, exchange.category, exchange.bytes, exchange.num_steps);
  const QuietRings::Rank& rank = rings_.table().rank_of(d, slot);
  const bool is_counted = rings_.ring(rank.ring).shares_links() && !relays_.is_before_relay(rank.ring, rank.position);
  if (!is_counted) {  // else as they are delivered
    parts_.ledger.count_received(d, exchange.iteration, exchange.category, exchange.bytes, exchange.num_steps);
  }
  part->chunks_sent = exchange.num_chunks * exchange.num_steps;
  part->origin = std::move(part->quiet_origin);
  stepwise_.complete(d, slot);
}

void RingRunner::on_new_route(network::RouteId route, const routing::Route& links, int32_t device, int32_t slot) {
  crossings_.resize(route + 1);
  crossings_[route].clear();
  for (const int32_t ring : rings_.table().crossed_by(links, rings_.table().rank_of(device, slot))) {
    crossings_[route].push_back(ring);
  }
  lone_.on_new_route(route, links, device, slot);
}

void RingRunner::before_send(network::RouteId route) {
  for (const int32_t ring : crossings_[route]) {
    disturb(ring);
    rings_.enter(ring);
  }
  lone_.before_send(route);
}

void RingRunner::after_sent(network::RouteId route) {
  for (const int32_t ring : crossings_[route]) rings_.leave(ring);
  lone_.after_sent(route);
}

// A message of others is about to start on the ring's links: what is under way there goes on message by message.
void RingRunner::disturb(int32_t ring) {
  for (const uint32_t occurrence : rings_.under_way(ring, parts_.queue.now())) go_on_stepwise(ring, occurrence);
}

void RingRunner::go_on_stepwise(int32_t ring, uint32_t occurrence) {
  const RingExchange exchange = rings_.exchange(ring, occurrence);
  const QuietRings::Moment moment = rings_.interrupt(ring, occurrence, parts_.queue.now());
  const auto is_through = [&](size_t i) { return moment.ranks[i].step == exchange.num_steps; };
  for (size_t i = 0; i < moment.ranks.size(); ++i) {
    if (!is_through(i)) restore(ring, occurrence, moment, i);  // else it ends, or has ended, as planned
  }
  for (const QuietRings::InFlight& one : moment.messages) {
    const int32_t message = make_message({ring, one.position, occurrence}, exchange, one.step);
    parts_.messenger[message].origin = one.origin;
    // A rank that is through counts all that it sent as received when it ends; these still come.
    if (is_through(one.position)) {
      const int32_t d = rings_.ring(ring).devices[one.position];
      parts_.ledger.count_received(d, exchange.iteration, exchange.category, exchange.bytes, -1);
    }
    parts_.messenger.deliver_at(message, one.arrival);
  }
}

// Puts a rank where it stands: the step that it is in, what it has sent and what has come to it.
void RingRunner::restore(int32_t ring, uint32_t occurrence, const QuietRings::Moment& moment, size_t i) {
  const std::vector<int32_t>& devices = rings_.ring(ring).devices;
  const RingExchange exchange = rings_.exchange(ring, occurrence);
  const QuietRings::Progress& rank = moment.ranks[i];
  const int32_t d = devices[i];
  Participation& part = parts_.participations.at(d, rings_.ring(ring).slot, occurrence);
  part.ordered_arrivals = moment.ranks[i == 0 ? devices.size() - 1 : i - 1].num_delivered;
  part.is_quiet = false;
  part.quiet_origin = CriticalPath::Ref();
  if (!part.is_joined) return;
  part.step = rank.step;
  part.is_step_started = true;
  part.pending_sends = rank.is_sending;
  part.chunks_sent = exchange.num_chunks * (rank.step + 1);
  part.origin = rank.origin;
  parts_.ledger.count_sent(d, exchange.iteration, exchange.category, exchange.bytes, rank.num_sent);
  parts_.ledger.count_received(d, exchange.iteration, exchange.category, exchange.bytes, rank.num_delivered);
  if (!rank.is_sending) return;
  const int32_t message = make_message({ring, static_cast<int32_t>(i), occurrence}, exchange, rank.step);
  parts_.messenger[message].origin = rank.origin;
  parts_.messenger.resume(message, rank.step_start);
}

int32_t RingRunner::make_message(const RelayRef& sender, const RingExchange& exchange, int32_t step) {
  const Ring& ring = rings_.ring(sender.ring);
  const int32_t index = parts_.messenger.make(ring.devices[sender.position], ring.slot, ring.peers[sender.position]);
  Message& message = parts_.messenger[index];
  message.step = step;
  message.occurrence = sender.occurrence;
  parts_.messenger.load(index, exchange.bytes, exchange.protocol);
  message.category = exchange.category;
  message.iteration = exchange.iteration;
  message.is_ordered = true;
  return index;
}

void RingRunner::add_loads(SimTime now, network::NetworkStats& stats) const {
  rings_.add_loads(now, stats.link_bytes, stats.link_busy_s);
  exchanges_.add_loads(stats);
  lone_.add_loads(now, stats);
  const std::vector<Ring>& rings = rings_.table().rings();
  for (size_t r = 0; r < rings.size(); ++r) {
    if (rings[r].shares_links())
      add_ring_loads(rings[r], relays_.loads(static_cast<int32_t>(r)), stats.link_bytes, stats.link_busy_s);
  }
}

void RingRunner::count_carried(SimTime now) {
  exchanges_.count_carried();
  lone_.count_carried(now);
  for (const QuietRings::Carried& one : rings_.carried(now)) {
    parts_.messenger.carrier().wire().count(one.source, parts_.system.device_stand_in[one.peer], one.bytes);
  }
  const std::vector<Ring>& rings = rings_.table().rings();
  for (size_t r = 0; r < rings.size(); ++r) {
    if (!rings[r].shares_links()) continue;
    const std::vector<RingLoad> loads = relays_.loads(static_cast<int32_t>(r));
    for (size_t i = 0; i < loads.size(); ++i) {
      const int32_t target = parts_.system.device_stand_in[rings[r].peers[i]];
      parts_.messenger.carrier().wire().count(rings[r].devices[i], target, loads[i].bytes);
    }
  }
}

}  // namespace rostam::runtime
