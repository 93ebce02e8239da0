#include "runtime/quiet_rings.h"

#include <algorithm>
#include <limits>

#include "sim/errors.h"
#include "workload/channels.h"

namespace rostam::runtime {

QuietRings::QuietRings(const WeightedSystem& system, const Footprint& footprint, const RingTable::RouteFunction& route)
    : table_(system, footprint, route) {
  for (const Ring& ring : table_.rings()) {
    rings_.emplace_back(ring);
    rings_.back().loads.resize(ring.devices.size());
  }
}

QuietRings::Collective& QuietRings::collective(RingState& ring, uint32_t occurrence) {
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
  RingState& ring = rings_[rank.ring];
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

bool QuietRings::fits_clock(const RingState& ring, const Collective& one, SimTime now) {
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
  RingState& ring = rings_[ring_index];
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
void QuietRings::retire(RingState& ring, SimTime now) {
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
  const RingState& ring = rings_[ring_index];
  std::vector<uint32_t> occurrences;
  for (size_t k = 0; k < ring.collectives.size(); ++k) {
    if (ring.collectives[k].is_quiet && ring.collectives[k].end > now) {
      occurrences.push_back(ring.first_occurrence + static_cast<uint32_t>(k));
    }
  }
  return occurrences;
}

QuietRings::Moment QuietRings::interrupt(int32_t ring_index, uint32_t occurrence, SimTime now) {
  RingState& ring = rings_[ring_index];
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
void QuietRings::add_load(const RingState& ring, const Collective& one, SimTime now, bool counts_unfinished,
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

std::vector<QuietRings::Load> QuietRings::loads_at(const RingState& ring, SimTime now) {
  std::vector<Load> loads = ring.loads;
  for (const Collective& one : ring.collectives) {
    if (one.is_quiet) add_load(ring, one, now, true, loads);
  }
  return loads;
}

std::vector<QuietRings::Carried> QuietRings::carried(SimTime now) const {
  std::vector<Carried> all;
  for (const RingState& ring : rings_) {
    const std::vector<Load> loads = loads_at(ring, now);
    for (size_t i = 0; i < loads.size(); ++i) all.push_back({ring.devices[i], ring.peers[i], loads[i].bytes});
  }
  return all;
}

void QuietRings::add_loads(SimTime now, std::vector<double>& bytes, std::vector<double>& busy_s) const {
  for (const RingState& ring : rings_) {
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
