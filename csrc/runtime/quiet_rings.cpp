#include "runtime/quiet_rings.h"

#include <algorithm>
#include <limits>

#include "sim/errors.h"
#include "workload/channels.h"

namespace rostam::runtime {

using workload::ChannelLister;

namespace {

constexpr size_t kMaxHops = size_t{1} << 22;  // beyond it routes cost more than the messages that they save

bool is_one_way_ring(const collectives::Schedule& schedule) {
  const collectives::Shape& shape = schedule.shape();
  // From p - 1 steps on every rank's end depends on every rank's join: none is through before the last has joined.
  return shape.num_ranks >= 2 && shape.has_ordered_arrivals && shape.has_fixed_peers && !shape.is_synchronous &&
         shape.num_steps >= shape.num_ranks - 1;
}

// Per simulated device and slot: the device that its rings pass to, or -1 if it has other uses or peers.
std::vector<std::vector<int32_t>> ring_peers(const TaskGraph& graph, const Folding& folding) {
  ChannelLister lister(graph);
  const auto is_ring = [&graph](int32_t s) { return s >= 0 && is_one_way_ring(*graph.schedules[s]); };
  std::vector<std::vector<int32_t>> peers;
  for (const int32_t device : folding.representative) {
    const auto& uses = lister.uses_of(graph.devices[device].program);
    std::vector<int32_t> of_slot(graph.devices[device].slots.size(), -1);
    for (size_t slot = 0; slot < uses.size(); ++slot) {
      if (uses[slot].empty() || !std::all_of(uses[slot].begin(), uses[slot].end(), is_ring)) continue;
      const auto& found = lister.peers_of(device, static_cast<int32_t>(slot));
      const auto is_first = [&found](const auto& one) { return one.first == found.front().first; };
      if (!found.empty() && std::all_of(found.begin(), found.end(), is_first)) of_slot[slot] = found.front().first;
    }
    peers.push_back(std::move(of_slot));
  }
  return peers;
}

// The simulated devices of the ring that starts at `first`; empty if one on the way has none, or it does not close.
std::vector<int32_t> follow(const std::vector<std::vector<int32_t>>& peers, const Folding& folding, int32_t first,
                            int32_t slot) {
  std::vector<int32_t> devices;
  int32_t d = first;
  do {
    const auto& of_slot = peers[d];
    if (slot >= static_cast<int32_t>(of_slot.size()) || of_slot[slot] < 0 || devices.size() >= peers.size()) return {};
    devices.push_back(d);
    d = folding.class_of_device[of_slot[slot]];
  } while (d != first);
  return devices;
}

}  // namespace

QuietRings::QuietRings(const TaskGraph& graph, const Folding& folding, const std::vector<LinkEvent>& events,
                       const RouteFunction& route)
    : owner_(folding.capacities.size(), kNone) {
  const auto num_devices = static_cast<int32_t>(folding.representative.size());
  for (int32_t d = 0; d < num_devices; ++d) {
    first_rank_.push_back(ranks_.size());
    ranks_.resize(ranks_.size() + graph.devices[folding.representative[d]].slots.size());
  }
  for (const LinkEvent& event : events) owner_[folding.class_of_link[event.link]] = kChanging;
  const std::vector<std::vector<int32_t>> peers = ring_peers(graph, folding);
  std::vector<std::vector<uint8_t>> is_seen(num_devices);
  std::vector<Ring> found;
  for (int32_t first = 0; first < num_devices; ++first) {
    for (int32_t slot = 0; slot < static_cast<int32_t>(peers[first].size()); ++slot) {
      if (peers[first][slot] < 0 || (!is_seen[first].empty() && is_seen[first][slot])) continue;
      Ring ring;
      ring.slot = slot;
      ring.devices = follow(peers, folding, first, slot);
      for (const int32_t d : ring.devices) {
        is_seen[d].resize(peers[d].size(), 0);
        is_seen[d][slot] = 1;
        ring.peers.push_back(peers[d][slot]);
      }
      if (!ring.devices.empty()) found.push_back(std::move(ring));
    }
  }
  // Of rings that share links, tensor parallelism's in a server say, the smaller ones repeat more often.
  std::stable_sort(found.begin(), found.end(),
                   [](const Ring& a, const Ring& b) { return a.devices.size() < b.devices.size(); });
  size_t num_hops = 0;
  for (Ring& ring : found) {
    for (size_t i = 0; i < ring.devices.size() && num_hops <= kMaxHops; ++i) {
      ring.routes.push_back(route(ring.devices[i], ring.slot, ring.peers[i]));
      num_hops += ring.routes.back().links.size();
      double bytes_per_s = std::numeric_limits<double>::infinity();
      for (const routing::LinkShare& hop : ring.routes.back().links) {
        bytes_per_s = std::min(bytes_per_s, folding.capacities[hop.link] / hop.share);
      }
      ring.bytes_per_s.push_back(bytes_per_s);
    }
    if (num_hops > kMaxHops) return;
    const auto has_rate = [](double rate) { return rate > 0 && rate < std::numeric_limits<double>::infinity(); };
    if (!std::all_of(ring.bytes_per_s.begin(), ring.bytes_per_s.end(), has_rate) || !claim_links(ring)) continue;
    ring.loads.resize(ring.devices.size());
    for (size_t i = 0; i < ring.devices.size(); ++i) {
      ranks_[first_rank_[ring.devices[i]] + ring.slot] = {static_cast<int32_t>(rings_.size()), static_cast<int32_t>(i)};
    }
    rings_.push_back(std::move(ring));
  }
}

// Makes the links the next ring's, if nobody owns them and no two of its messages share one.
bool QuietRings::claim_links(const Ring& ring) {
  const auto index = static_cast<int32_t>(rings_.size());
  for (size_t i = 0; i < ring.routes.size(); ++i) {
    for (const routing::LinkShare& hop : ring.routes[i].links) {
      if (owner_[hop.link] != kNone) {
        std::replace(owner_.begin(), owner_.end(), index, kNone);
        return false;
      }
      owner_[hop.link] = index;
    }
  }
  return true;
}

std::vector<int32_t> QuietRings::crossed_by(const routing::Route& route, const Rank& own) const {
  std::vector<int32_t> rings;
  for (const routing::LinkShare& hop : route.links) {
    const int32_t owner = owner_[hop.link];
    if (owner < 0 || owner == own.ring || std::find(rings.begin(), rings.end(), owner) != rings.end()) continue;
    rings.push_back(owner);
  }
  return rings;
}

QuietRings::Collective& QuietRings::collective(Ring& ring, uint32_t occurrence) {
  const size_t index = occurrence - ring.first_occurrence;
  while (ring.collectives.size() <= index) {
    Collective one;
    one.is_quiet = ring.num_visitors == 0;
    one.joins.assign(ring.devices.size(), SimTime::never());
    one.origins.resize(ring.devices.size());
    ring.collectives.push_back(std::move(one));
  }
  return ring.collectives[index];
}

QuietRings::Joined QuietRings::join(const Rank& rank, uint32_t occurrence, const Exchange& exchange, SimTime now,
                                    const CriticalPath::Ref& origin) {
  Ring& ring = rings_[rank.ring];
  retire(ring, now);
  Collective& one = collective(ring, occurrence);
  if (one.num_joined == 0) {
    one.exchange = exchange;
    for (const double bytes_per_s : ring.bytes_per_s) {
      const double ps = transmit_ps(static_cast<double>(exchange.wire_bytes), bytes_per_s);
      one.send_times.push_back(ps < kMaxPs ? SimTime::from_whole_ps(ps) : SimTime::never());
    }
    one.is_quiet = one.is_quiet && fits_clock(ring, one, now);
  }
  if (one.exchange.num_steps != exchange.num_steps || one.exchange.bytes != exchange.bytes) {
    ROSTAM_THROW(ConfigError, "device " << ring.devices[rank.position] << " joins collective " << occurrence
                                        << " on slot " << ring.slot << " with " << exchange.num_steps << " messages of "
                                        << exchange.bytes << " bytes, others with " << one.exchange.num_steps << " of "
                                        << one.exchange.bytes);
  }
  const bool is_last = ++one.num_joined == static_cast<int32_t>(ring.devices.size());
  if (!one.is_quiet) return Joined::kSimulated;
  one.joins[rank.position] = now;
  one.origins[rank.position] = origin;
  return is_last ? Joined::kLast : Joined::kWaiting;
}

bool QuietRings::fits_clock(const Ring& ring, const Collective& one, SimTime now) {
  double slowest_ps = 0;
  for (size_t i = 0; i < one.send_times.size(); ++i) {
    const auto latency_ps = static_cast<double>(ring.routes[i].latency.ps());
    slowest_ps = std::max(slowest_ps, static_cast<double>(one.send_times[i].ps()) + latency_ps);
  }
  return static_cast<double>(now.ps()) + slowest_ps * one.exchange.num_steps < kMaxPs;
}

// The start of every rank's first step, as far as it is reached by `now`.
std::vector<QuietRings::Start> QuietRings::first_step(const Collective& one, SimTime now) {
  std::vector<Start> starts;
  for (size_t i = 0; i < one.joins.size(); ++i) {
    starts.push_back({one.joins[i] <= now ? one.joins[i] : SimTime::never(), static_cast<int32_t>(i)});
  }
  return starts;
}

// From the starts of one step to those of the next, as far as they are reached by `now`.
void QuietRings::next_step(const Ring& ring, const Collective& one, SimTime now, std::vector<Start>& starts) {
  const Start last = starts.back();
  for (size_t i = starts.size(); i-- > 0;) {
    const size_t k = i == 0 ? starts.size() - 1 : i - 1;
    const Start before = i == 0 ? last : starts[k];
    if (starts[i].time == SimTime::never() || before.time == SimTime::never()) {
      starts[i].time = SimTime::never();
      continue;
    }
    const SimTime sent = starts[i].time + one.send_times[i];
    const SimTime arrival = before.time + one.send_times[k] + ring.routes[k].latency;
    if (arrival >= sent) starts[i].decided_by = before.decided_by;
    starts[i].time = std::max(sent, arrival);
    if (starts[i].time > now) starts[i].time = SimTime::never();
  }
}

const std::vector<QuietRings::End>& QuietRings::ends(int32_t ring_index, uint32_t occurrence) {
  Ring& ring = rings_[ring_index];
  Collective& one = collective(ring, occurrence);
  std::vector<Start> starts = first_step(one, SimTime::never());
  for (int32_t step = 0; step < one.exchange.num_steps; ++step) next_step(ring, one, SimTime::never(), starts);
  one.end = SimTime::zero();
  ends_.clear();
  for (const Start& start : starts) {
    one.end = std::max(one.end, start.time);
    ends_.push_back({start.time, one.origins[start.decided_by]});
  }
  return ends_;
}

// Takes collectives that need nothing any more off the queue.
void QuietRings::retire(Ring& ring, SimTime now) {
  while (!ring.collectives.empty()) {
    const Collective& one = ring.collectives.front();
    const bool is_over = one.is_quiet ? one.end <= now : one.num_joined == static_cast<int32_t>(ring.devices.size());
    if (!is_over) return;
    if (one.is_quiet) add_load(ring, one, now, false, ring.loads);
    ring.collectives.pop_front();
    ++ring.first_occurrence;
  }
}

std::vector<uint32_t> QuietRings::under_way(int32_t ring_index, SimTime now) const {
  const Ring& ring = rings_[ring_index];
  std::vector<uint32_t> occurrences;
  for (size_t k = 0; k < ring.collectives.size(); ++k) {
    if (ring.collectives[k].is_quiet && ring.collectives[k].end > now) {
      occurrences.push_back(ring.first_occurrence + static_cast<uint32_t>(k));
    }
  }
  return occurrences;
}

QuietRings::Moment QuietRings::interrupt(int32_t ring_index, uint32_t occurrence, SimTime now) {
  Ring& ring = rings_[ring_index];
  Collective& one = collective(ring, occurrence);
  add_load(ring, one, now, false, ring.loads);
  one.is_quiet = false;
  Moment moment;
  moment.ranks.resize(ring.devices.size());
  std::vector<Start> starts = first_step(one, now);
  for (int32_t step = 0; step <= one.exchange.num_steps; ++step) {
    for (size_t i = 0; i < starts.size(); ++i) {
      if (starts[i].time == SimTime::never()) continue;
      Progress& rank = moment.ranks[i];
      rank.step = step;
      rank.origin = one.origins[starts[i].decided_by];
      if (step == one.exchange.num_steps) continue;
      const SimTime sent = starts[i].time + one.send_times[i], arrival = sent + ring.routes[i].latency;
      rank.is_sending = sent > now;
      rank.num_sent += sent <= now;
      rank.num_delivered += arrival <= now;
      rank.step_start = starts[i].time;
      if (!rank.is_sending && arrival > now) {
        moment.messages.push_back({static_cast<int32_t>(i), step, arrival, rank.origin});
      }
    }
    if (step < one.exchange.num_steps) next_step(ring, one, now, starts);
  }
  one.origins.clear();
  return moment;
}

// Adds what a quiet collective has carried up to `now`, per rank; bytes of messages that are still being sent on
// demand.
void QuietRings::add_load(const Ring& ring, const Collective& one, SimTime now, bool counts_unfinished,
                          std::vector<Load>& loads) {
  const auto bytes = static_cast<double>(one.exchange.wire_bytes);
  if (one.end <= now) {
    for (size_t i = 0; i < loads.size(); ++i) {
      loads[i].bytes += bytes * one.exchange.num_steps;
      loads[i].busy_ps += one.send_times[i].ps() * one.exchange.num_steps;
    }
    return;
  }
  std::vector<Start> starts = first_step(one, now);
  for (int32_t step = 0; step < one.exchange.num_steps; ++step) {
    for (size_t i = 0; i < starts.size(); ++i) {
      if (starts[i].time == SimTime::never()) continue;
      const SimTime passed = std::min(one.send_times[i], now - starts[i].time);
      loads[i].busy_ps += passed.ps();
      if (passed == one.send_times[i]) {
        loads[i].bytes += bytes;
      } else if (counts_unfinished) {
        loads[i].bytes += ring.bytes_per_s[i] * passed.seconds();
      }
    }
    next_step(ring, one, now, starts);
  }
}

std::vector<QuietRings::Load> QuietRings::loads_at(const Ring& ring, SimTime now) {
  std::vector<Load> loads = ring.loads;
  for (const Collective& one : ring.collectives) {
    if (one.is_quiet) add_load(ring, one, now, true, loads);
  }
  return loads;
}

std::vector<QuietRings::Carried> QuietRings::carried(SimTime now) const {
  std::vector<Carried> all;
  for (const Ring& ring : rings_) {
    const std::vector<Load> loads = loads_at(ring, now);
    for (size_t i = 0; i < loads.size(); ++i) all.push_back({ring.devices[i], ring.peers[i], loads[i].bytes});
  }
  return all;
}

void QuietRings::add_loads(SimTime now, std::vector<double>& bytes, std::vector<double>& busy_s) const {
  for (const Ring& ring : rings_) {
    const std::vector<Load> loads = loads_at(ring, now);
    for (size_t i = 0; i < loads.size(); ++i) {
      for (const routing::LinkShare& hop : ring.routes[i].links) {
        bytes[hop.link] += loads[i].bytes * hop.share;
        busy_s[hop.link] += static_cast<double>(loads[i].busy_ps) * 1e-12;
      }
    }
  }
}

}  // namespace rostam::runtime
