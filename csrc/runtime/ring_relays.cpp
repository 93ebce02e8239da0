#include "runtime/ring_relays.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/errors.h"

namespace rostam::runtime {

RingRelays::RingRelays(const WeightedSystem& system, const std::vector<Ring>& rings, const EventQueue& queue,
                       RelayClient& client)
    : system_(system), queue_(queue), client_(client) {
  for (const Ring& ring : rings) {
    RingState state;
    state.ring = &ring;
    if (ring.shares_links()) state.loads.resize(ring.devices.size());
    rings_.push_back(std::move(state));
  }
}

RingRelays::Collective& RingRelays::make(const RelayRef& rank) {
  RingState& ring = rings_[rank.ring];
  const size_t index = rank.occurrence - ring.first_occurrence;
  while (ring.collectives.size() <= index) ring.collectives.emplace_back(ring.ring->devices.size());
  return ring.collectives[index];
}

bool RingRelays::join(const RelayRef& rank, const RingExchange& exchange, const CriticalPath::Ref& origin) {
  RingState& ring = rings_[rank.ring];
  retire(ring);
  Collective& one = make(rank);
  one.join(system_, *ring.ring, rank.position, rank.occurrence, exchange);
  if (one.num_joined == 1) {
    // Protocols hold messages inside a server to a rate of their own.
    const bool has_caps =
        exchange.protocol >= 0 && std::isfinite(system_.graph->protocols[exchange.protocol].server_rate);
    one.is_quiet = !has_caps && one.fits_clock(queue_.now());
    one.num_left = static_cast<int32_t>(ring.ring->devices.size());
  }
  if (!one.is_quiet) return false;
  one.ranks[rank.position].join = queue_.now();
  one.ranks[rank.position].origin = origin;
  one.rank_of.emplace(origin.index(), rank.position);
  if (is_relay(rank.ring, rank.position)) {
    begin(rank, one);
  } else {
    --one.num_left;
  }
  return true;
}

bool RingRelays::takes(const RelayRef& relay) const {
  return relay.occurrence >= rings_[relay.ring].first_occurrence && of(relay).is_quiet;
}

void RingRelays::arrive(const RelayRef& relay, const CriticalPath::Ref& origin) {
  Collective& one = make(relay);
  pass(relay, one, {queue_.now(), one.rank_of.at(origin.index())});
}

// The relay has joined: its first step begins, and those for which messages have come already.
void RingRelays::begin(const RelayRef& relay, Collective& one) {
  Relay& own = one.relays[relay.position];
  own.step = 0;
  own.start = queue_.now();
  own.decided_by = relay.position;
  RelayRef after = relay;
  after.position = next(*rings_[relay.ring].ring, relay.position);
  pass(after, one, send(relay, one));
  for (const Arrival& arrival : std::exchange(own.early, {})) pass(relay, one, arrival);
}

// A message has come to a rank, or will: a relay that has joined goes a step further, which brings the next rank one.
void RingRelays::pass(RelayRef rank, Collective& one, Arrival arrival) {
  const Ring& ring = *rings_[rank.ring].ring;
  for (; is_relay(rank.ring, rank.position); rank.position = next(ring, rank.position)) {
    Relay& own = one.relays[rank.position];
    if (own.step < 0) return own.early.push_back(arrival);
    const SimTime sent = own.start + one.ranks[rank.position].send_time;
    ++own.step;
    own.start = std::max(sent, arrival.time);
    if (arrival.time >= sent) own.decided_by = arrival.decided_by;
    if (own.step == one.exchange.num_steps) {
      --one.num_left;
      one.last_end = std::max(one.last_end, own.start);
      return client_.on_relay_end(rank, own.start, one.ranks[own.decided_by].origin);
    }
    arrival = send(rank, one);
  }
  RelayRef sender = rank;
  sender.position = (rank.position == 0 ? static_cast<int32_t>(ring.devices.size()) : rank.position) - 1;
  client_.on_relayed(sender, one.relays[sender.position].step, arrival.time, one.ranks[arrival.decided_by].origin);
}

// The message of the relay's step, as it comes to the next rank.
RingRelays::Arrival RingRelays::send(const RelayRef& relay, Collective& one) const {
  Relay& own = one.relays[relay.position];
  const SimTime send_time = one.ranks[relay.position].send_time;
  for (; !own.starts.empty() && own.starts.front() + send_time <= queue_.now(); ++own.num_sent) own.starts.pop_front();
  own.starts.push_back(own.start);
  return {own.start + send_time + one.ranks[relay.position].latency, own.decided_by};
}

// Takes collectives that need nothing any more off the queue.
void RingRelays::retire(RingState& ring) const {
  while (!ring.collectives.empty()) {
    const Collective& one = ring.collectives.front();
    const bool is_over = one.is_quiet ? one.num_joined > 0 && one.num_left == 0 && one.last_end <= queue_.now()
                                      : one.num_joined == static_cast<int32_t>(ring.ring->devices.size());
    if (!is_over) return;
    if (one.is_quiet) add_load(ring, one, ring.loads);
    ring.collectives.pop_front();
    ++ring.first_occurrence;
  }
}

void RingRelays::add_load(const RingState& ring, const Collective& one, std::vector<RingLoad>& loads) const {
  const auto bytes = static_cast<double>(one.exchange.wire_bytes);
  for (size_t i = 0; i < one.relays.size(); ++i) {
    const Relay& relay = one.relays[i];
    loads[i].bytes += bytes * relay.num_sent;
    loads[i].busy_ps += one.ranks[i].send_time.ps() * relay.num_sent;
    for (const SimTime start : relay.starts) {
      if (start >= queue_.now()) break;
      const SimTime passed = std::min(one.ranks[i].send_time, queue_.now() - start);
      loads[i].busy_ps += passed.ps();
      loads[i].bytes += passed == one.ranks[i].send_time ? bytes : ring.ring->bytes_per_s[i] * passed.seconds();
    }
  }
}

std::vector<RingLoad> RingRelays::loads(int32_t ring_index) const {
  const RingState& ring = rings_[ring_index];
  std::vector<RingLoad> loads = ring.loads;
  for (const Collective& one : ring.collectives) {
    if (one.is_quiet) add_load(ring, one, loads);
  }
  return loads;
}

}  // namespace rostam::runtime
