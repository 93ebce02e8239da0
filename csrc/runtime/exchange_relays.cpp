#include "runtime/exchange_relays.h"

#include <algorithm>
#include <cmath>

#include "sim/checked.h"
#include "sim/errors.h"

namespace rostam::runtime {

ExchangeRelays::ExchangeRelays(const WeightedSystem& system, const std::vector<Exchange>& exchanges,
                               const routing::RouteTable& routes, const EventQueue& queue, ExchangeClient& client)
    : system_(system), routes_(routes), queue_(queue), client_(client) {
  for (const Exchange& exchange : exchanges) {
    ExchangeState state;
    state.of = &exchange;
    for (const std::vector<ExchangeSend>& sends : exchange.sends) state.loads.emplace_back(sends.size());
    exchanges_.push_back(std::move(state));
  }
}

ExchangeRelays::Collective& ExchangeRelays::make(const ExchangeRef& rank) {
  ExchangeState& state = exchanges_[rank.exchange];
  const size_t index = rank.occurrence - state.first_occurrence;
  while (state.collectives.size() <= index) state.collectives.emplace_back();
  return state.collectives[index];
}

int64_t ExchangeRelays::wire_bytes(const ExchangeSend& send, const ExchangeTerms& terms) const {
  const int64_t bytes = checked_multiply(terms.chunk_bytes, send.num_chunks);
  const int64_t own = terms.protocol < 0 ? bytes : system_.graph->protocols[terms.protocol].wire_bytes(bytes);
  return routes_.wire_bytes(own);
}

// How long the messages of every rank take, alone on their links.
void ExchangeRelays::begin(const Exchange& exchange, const ExchangeTerms& terms, Collective& one) const {
  one.terms = terms;
  one.ranks.resize(exchange.devices.size());
  one.num_left = static_cast<int32_t>(exchange.devices.size());
  const workload::Protocol* protocol = terms.protocol < 0 ? nullptr : &system_.graph->protocols[terms.protocol];
  for (size_t r = 0; r < exchange.devices.size(); ++r) {
    Rank& rank = one.ranks[r];
    rank.arrivals.resize(static_cast<size_t>(exchange.num_receives[r]));
    for (const ExchangeSend& send : exchange.sends[r]) {
      const double ps = transmit_ps(static_cast<double>(wire_bytes(send, terms)), send.bytes_per_s);
      rank.send_times.push_back(ps < kMaxPs ? SimTime::from_whole_ps(ps) : SimTime::never());
      rank.latencies.push_back(send.route.latency);
      if (protocol != nullptr) {
        const bool is_inside = system_.is_inside_server(exchange.devices[r], exchange.devices[send.peer]);
        rank.latencies.back() += is_inside ? protocol->server_hop : protocol->network_hop;
      }
      rank.longest = std::max(rank.longest, rank.send_times.back());
    }
  }
  // Protocols hold messages inside a server to a rate of their own.
  const bool has_caps = protocol != nullptr && std::isfinite(protocol->server_rate);
  one.has_relays = !has_caps && fits_clock(exchange, one);
}

// Whether it is through before the end of simulated time, if all joined now.
bool ExchangeRelays::fits_clock(const Exchange& exchange, const Collective& one) const {
  double slowest_ps = 0;
  for (const Rank& rank : one.ranks) {
    for (const SimTime latency : rank.latencies) {
      slowest_ps = std::max(slowest_ps, static_cast<double>(rank.longest.ps()) + static_cast<double>(latency.ps()));
    }
  }
  return static_cast<double>(queue_.now().ps()) + slowest_ps * exchange.num_steps < kMaxPs;
}

bool ExchangeRelays::join(const ExchangeRef& ref, const ExchangeTerms& terms, const CriticalPath::Ref& origin) {
  ExchangeState& state = exchanges_[ref.exchange];
  retire(state);
  Collective& one = make(ref);
  if (one.num_joined++ == 0) begin(*state.of, terms, one);
  if (one.terms.chunk_bytes != terms.chunk_bytes) {
    ROSTAM_THROW(ConfigError, "device " << state.of->devices[ref.rank] << " joins collective " << ref.occurrence
                                        << " on slot " << state.of->slot << " with chunks of " << terms.chunk_bytes
                                        << " bytes, others with chunks of " << one.terms.chunk_bytes);
  }
  if (!one.has_relays) return false;
  Rank& rank = one.ranks[ref.rank];
  rank.origin = origin;
  one.rank_of.emplace(origin.index(), ref.rank);
  if (!is_relay(ref)) {
    --one.num_left;
    return true;
  }
  rank.step = 0;
  rank.start = queue_.now();
  rank.decided_by = ref.rank;
  send(ref, one);
  waiting_.push_back(ref.rank);
  go_on(ref, one);
  return true;
}

bool ExchangeRelays::takes(const ExchangeRef& relay) const {
  return relay.occurrence >= exchanges_[relay.exchange].first_occurrence && of(relay).has_relays;
}

void ExchangeRelays::arrive(const ExchangeRef& relay, int32_t sender, const CriticalPath::Ref& origin) {
  Collective& one = make(relay);
  for (const ExchangeSend& send : exchanges_[relay.exchange].of->sends[sender]) {
    if (send.peer != relay.rank) continue;
    one.ranks[relay.rank].arrivals[send.arrival].push_back({queue_.now(), one.rank_of.at(origin.index())});
  }
  waiting_.push_back(relay.rank);
  go_on(relay, one);
}

// All relays that can go on do, and those that wait for them.
void ExchangeRelays::go_on(const ExchangeRef& any, Collective& one) {
  while (!waiting_.empty()) {
    const ExchangeRef relay = {any.exchange, waiting_.back(), any.occurrence};
    waiting_.pop_back();
    while (advance(relay, one)) {
    }
  }
}

// The relay goes a step further if all that it waits for has come. Of messages that come last together the one of the
// last place decides.
bool ExchangeRelays::advance(const ExchangeRef& relay, Collective& one) {
  Rank& own = one.ranks[relay.rank];
  const Exchange& exchange = *exchanges_[relay.exchange].of;
  if (own.step < 0 || own.step == exchange.num_steps) return false;
  const auto is_missing = [](const std::deque<Arrival>& arrivals) { return arrivals.empty(); };
  if (std::any_of(own.arrivals.begin(), own.arrivals.end(), is_missing)) return false;
  SimTime next = own.start + own.longest;
  for (std::deque<Arrival>& arrivals : own.arrivals) {
    if (arrivals.front().time >= next) {
      next = arrivals.front().time;
      own.decided_by = arrivals.front().decided_by;
    }
    arrivals.pop_front();
  }
  own.start = next;
  if (++own.step < exchange.num_steps) {
    send(relay, one);
    return true;
  }
  --one.num_left;
  one.last_end = std::max(one.last_end, own.start);
  client_.on_relay_end(relay, own.start, one.ranks[own.decided_by].origin);
  return false;
}

// The messages of the relay's step, as they come to its peers.
void ExchangeRelays::send(const ExchangeRef& relay, Collective& one) {
  Rank& own = one.ranks[relay.rank];
  for (; !own.starts.empty() && own.starts.front() + own.longest <= queue_.now(); ++own.num_sent) {
    own.starts.pop_front();
  }
  own.starts.push_back(own.start);
  const std::vector<ExchangeSend>& sends = exchanges_[relay.exchange].of->sends[relay.rank];
  for (size_t k = 0; k < sends.size(); ++k) {
    const SimTime arrival = own.start + own.send_times[k] + own.latencies[k];
    const ExchangeRef peer = {relay.exchange, sends[k].peer, relay.occurrence};
    if (is_relay(peer)) {
      one.ranks[peer.rank].arrivals[sends[k].arrival].push_back({arrival, own.decided_by});
      waiting_.push_back(peer.rank);
    } else {
      client_.on_relayed(relay, static_cast<int32_t>(k), own.step, arrival, one.ranks[own.decided_by].origin);
    }
  }
}

// Takes collectives that need nothing any more off the queue.
void ExchangeRelays::retire(ExchangeState& state) const {
  while (!state.collectives.empty()) {
    const Collective& one = state.collectives.front();
    const bool is_over = one.has_relays ? one.num_joined > 0 && one.num_left == 0 && one.last_end <= queue_.now()
                                        : one.num_joined == static_cast<int32_t>(state.of->devices.size());
    if (!is_over) return;
    if (one.has_relays) add_load(state, one, state.loads);
    state.collectives.pop_front();
    ++state.first_occurrence;
  }
}

void ExchangeRelays::add_load(const ExchangeState& state, const Collective& one,
                              std::vector<std::vector<Load>>& loads) const {
  for (size_t r = 0; r < one.ranks.size(); ++r) {
    if (state.of->is_relay[r] == 0) continue;
    const Rank& rank = one.ranks[r];
    for (size_t k = 0; k < rank.send_times.size(); ++k) {
      const ExchangeSend& send = state.of->sends[r][k];
      const auto bytes = static_cast<double>(wire_bytes(send, one.terms));
      Load& load = loads[r][k];
      load.bytes += bytes * static_cast<double>(rank.num_sent);
      load.busy_ps += rank.send_times[k].times(rank.num_sent).ps();
      for (const SimTime start : rank.starts) {
        if (start >= queue_.now()) break;
        const SimTime passed = std::min(rank.send_times[k], queue_.now() - start);
        load.busy_ps += passed.ps();
        load.bytes += passed == rank.send_times[k] ? bytes : send.bytes_per_s * passed.seconds();
      }
    }
  }
}

std::vector<std::vector<ExchangeRelays::Load>> ExchangeRelays::loads(int32_t index) const {
  const ExchangeState& state = exchanges_[index];
  std::vector<std::vector<Load>> loads = state.loads;
  for (const Collective& one : state.collectives) {
    if (one.has_relays && one.num_joined > 0) add_load(state, one, loads);
  }
  return loads;
}

}  // namespace rostam::runtime
