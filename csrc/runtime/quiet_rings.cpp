#include "runtime/quiet_rings.h"

#include <algorithm>
#include <limits>

#include "sim/errors.h"
#include "workload/channels.h"

namespace rostam::runtime {

QuietRings::QuietRings(const WeightedSystem& system, const Footprint& footprint, bool takes_sharing,
                       const RingTable::RouteFunction& route)
    : system_(system), table_(system, footprint, takes_sharing, route) {
  for (const Ring& ring : table_.rings()) {
    rings_.emplace_back(ring);
    rings_.back().loads.resize(ring.devices.size());
  }
}

RingCollective& QuietRings::collective(RingState& ring, uint32_t occurrence) {
  const uint32_t index = occurrence - ring.first_occurrence;
  while (ring.collectives.size() <= index) {
    if (free_.empty()) free_.push_back(&all_.emplace_back());
    RingCollective* const one = free_.back();
    free_.pop_back();
    one->reset(ring.devices.size());
    one->is_quiet = ring.num_visitors == 0;
    ring.collectives.push_back(one);
  }
  return *ring.collectives[index];
}

QuietRings::Joined QuietRings::join(const Rank& rank, uint32_t occurrence, const RingExchange& exchange, SimTime now,
                                    const CriticalPath::Ref& origin) {
  RingState& ring = rings_[rank.ring];
  retire(ring, now);
  RingCollective& one = collective(ring, occurrence);
  one.join(system_, ring, rank.position, occurrence, exchange);
  if (one.num_joined == 1) one.is_quiet = one.is_quiet && one.fits_clock(now);
  const bool is_last = one.num_joined == static_cast<int32_t>(ring.devices.size());
  if (!one.is_quiet) return Joined::kSimulated;
  one.ranks[rank.position].join = now;
  one.ranks[rank.position].origin = origin;
  return is_last ? Joined::kLast : Joined::kWaiting;
}

const std::vector<QuietRings::End>& QuietRings::ends(int32_t ring_index, uint32_t occurrence) {
  RingState& ring = rings_[ring_index];
  RingCollective& one = collective(ring, occurrence);
  one.end = SimTime::zero();
  ends_.clear();
  for (const RingSteps::Start& start : ring_ends(one)) {
    one.end = std::max(one.end, start.time);
    ends_.push_back({start.time, one.ranks[start.decided_by].origin});
  }
  return ends_;
}

// Takes collectives that need nothing any more off the queue.
void QuietRings::retire(RingState& ring, SimTime now) {
  while (!ring.collectives.empty()) {
    RingCollective& one = *ring.collectives[0];
    const bool is_over = one.is_quiet ? one.end <= now : one.num_joined == static_cast<int32_t>(ring.devices.size());
    if (!is_over) return;
    if (one.is_quiet) one.add_load(ring, now, false, ring.loads);
    one.ranks.clear();  // they hold parts of the critical path
    free_.push_back(&one);
    ring.collectives.pop_front();
    ++ring.first_occurrence;
  }
}

std::vector<uint32_t> QuietRings::under_way(int32_t ring_index, SimTime now) const {
  const RingState& ring = rings_[ring_index];
  std::vector<uint32_t> occurrences;
  for (uint32_t k = 0; k < ring.collectives.size(); ++k) {
    if (ring.collectives[k]->is_quiet && ring.collectives[k]->end > now) {
      occurrences.push_back(ring.first_occurrence + k);
    }
  }
  return occurrences;
}

QuietRings::Moment QuietRings::interrupt(int32_t ring_index, uint32_t occurrence, SimTime now) {
  RingState& ring = rings_[ring_index];
  RingCollective& one = collective(ring, occurrence);
  one.add_load(ring, now, false, ring.loads);
  one.is_quiet = false;
  Moment moment;
  moment.ranks.resize(ring.devices.size());
  RingSteps steps(one, now);
  for (int32_t step = 0; step <= one.exchange.num_steps; ++step) {
    const std::vector<RingSteps::Start>& starts = steps.starts();
    for (size_t i = 0; i < starts.size(); ++i) {
      if (starts[i].time == SimTime::never()) continue;
      Progress& rank = moment.ranks[i];
      rank.step = step;
      rank.origin = one.ranks[starts[i].decided_by].origin;
      if (step == one.exchange.num_steps) continue;
      const SimTime sent = starts[i].time + one.ranks[i].send_time, arrival = sent + one.ranks[i].latency;
      rank.is_sending = sent > now;
      rank.num_sent += sent <= now;
      rank.num_delivered += arrival <= now;
      rank.step_start = starts[i].time;
      if (!rank.is_sending && arrival > now) {
        moment.messages.push_back({static_cast<int32_t>(i), step, arrival, rank.origin});
      }
    }
    if (step < one.exchange.num_steps) steps.advance();
  }
  for (RingRank& rank : one.ranks) rank.origin = CriticalPath::Ref();
  return moment;
}

std::vector<RingLoad> QuietRings::loads_at(const RingState& ring, SimTime now) {
  std::vector<RingLoad> loads = ring.loads;
  for (const RingCollective* one : ring.collectives) {
    if (one->is_quiet) one->add_load(ring, now, true, loads);
  }
  return loads;
}

std::vector<QuietRings::Carried> QuietRings::carried(SimTime now) const {
  std::vector<Carried> all;
  for (const RingState& ring : rings_) {
    if (ring.shares_links()) continue;
    const std::vector<RingLoad> loads = loads_at(ring, now);
    for (size_t i = 0; i < loads.size(); ++i) all.push_back({ring.devices[i], ring.peers[i], loads[i].bytes});
  }
  return all;
}

void QuietRings::add_loads(SimTime now, std::vector<double>& bytes, std::vector<double>& busy_s) const {
  for (const RingState& ring : rings_) {
    if (!ring.shares_links()) add_ring_loads(ring, loads_at(ring, now), bytes, busy_s);
  }
}

}  // namespace rostam::runtime
