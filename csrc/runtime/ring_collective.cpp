#include "runtime/ring_collective.h"

#include <algorithm>
#include <deque>

namespace rostam::runtime {

void add_ring_loads(const Ring& ring, const std::vector<RingLoad>& loads, std::vector<double>& bytes,
                    std::vector<double>& busy_s) {
  for (size_t i = 0; i < loads.size(); ++i) {
    for (const routing::LinkShare& hop : ring.routes[i].links) {
      bytes[hop.link] += loads[i].bytes * hop.share;
      busy_s[hop.link] += static_cast<double>(loads[i].busy_ps) * 1e-12;
    }
  }
}

void RingCollective::reset(size_t num_ranks) {
  exchange = RingExchange();
  is_quiet = true;
  num_joined = 0;
  ranks.assign(num_ranks, RingRank());
  end = SimTime::never();
}

void RingCollective::join(const WeightedSystem& system, const Ring& ring, int32_t position, uint32_t occurrence,
                          const RingExchange& of_rank) {
  if (num_joined++ == 0) begin(system, ring, of_rank);
  if (exchange.num_steps == of_rank.num_steps && exchange.bytes == of_rank.bytes) return;
  ROSTAM_THROW(ConfigError, "device " << ring.devices[position] << " joins collective " << occurrence << " on slot "
                                      << ring.slot << " with " << of_rank.num_steps << " messages of " << of_rank.bytes
                                      << " bytes, others with " << exchange.num_steps << " of " << exchange.bytes);
}

void RingCollective::begin(const WeightedSystem& system, const Ring& ring, const RingExchange& of_all) {
  exchange = of_all;
  const workload::Protocol* protocol =
      exchange.protocol < 0 ? nullptr : &system.graph->protocols[static_cast<size_t>(exchange.protocol)];
  for (size_t i = 0; i < ring.devices.size(); ++i) {
    const double ps = transmit_ps(static_cast<double>(exchange.wire_bytes), ring.bytes_per_s[i]);
    RingRank& rank = ranks[i];
    rank.send_time = ps < kMaxPs ? SimTime::from_whole_ps(ps) : SimTime::never();
    rank.latency = ring.routes[i].latency;
    if (protocol == nullptr) continue;
    const bool is_inside = system.is_inside_server(ring.devices[i], ring.peers[i]);
    rank.latency += is_inside ? protocol->server_hop : protocol->network_hop;
  }
}

bool RingCollective::fits_clock(SimTime now) const {
  double slowest_ps = 0;
  for (const RingRank& rank : ranks) {
    const auto latency_ps = static_cast<double>(rank.latency.ps());
    slowest_ps = std::max(slowest_ps, static_cast<double>(rank.send_time.ps()) + latency_ps);
  }
  return static_cast<double>(now.ps()) + slowest_ps * exchange.num_steps < kMaxPs;
}

void RingCollective::add_load(const Ring& ring, SimTime now, bool counts_unfinished,
                              std::vector<RingLoad>& loads) const {
  const auto bytes = static_cast<double>(exchange.wire_bytes);
  if (end <= now) {
    for (size_t i = 0; i < loads.size(); ++i) {
      loads[i].bytes += bytes * exchange.num_steps;
      loads[i].busy_ps += ranks[i].send_time.ps() * exchange.num_steps;
    }
    return;
  }
  RingSteps steps(*this, now);
  for (int32_t step = 0; step < exchange.num_steps; ++step) {
    const std::vector<RingSteps::Start>& starts = steps.starts();
    for (size_t i = 0; i < starts.size(); ++i) {
      if (starts[i].time == SimTime::never()) continue;
      const SimTime passed = std::min(ranks[i].send_time, now - starts[i].time);
      loads[i].busy_ps += passed.ps();
      if (passed == ranks[i].send_time) {
        loads[i].bytes += bytes;
      } else if (counts_unfinished) {
        loads[i].bytes += ring.bytes_per_s[i] * passed.seconds();
      }
    }
    steps.advance();
  }
}

RingSteps::RingSteps(const RingCollective& collective, SimTime now) : collective_(collective), now_(now) {
  for (size_t i = 0; i < collective.ranks.size(); ++i) {
    const SimTime join = collective.ranks[i].join;
    starts_.push_back({join <= now ? join : SimTime::never(), static_cast<int32_t>(i)});
  }
}

void RingSteps::advance() {
  const Start last = starts_.back();
  for (size_t i = starts_.size(); i-- > 0;) {
    const size_t k = i == 0 ? starts_.size() - 1 : i - 1;
    const Start before = i == 0 ? last : starts_[k];
    if (starts_[i].time == SimTime::never() || before.time == SimTime::never()) {
      starts_[i].time = SimTime::never();
      continue;
    }
    const SimTime sent = starts_[i].time + collective_.ranks[i].send_time;
    const SimTime arrival = before.time + collective_.ranks[k].send_time + collective_.ranks[k].latency;
    if (arrival >= sent) starts_[i].decided_by = before.decided_by;
    starts_[i].time = std::max(sent, arrival);
    if (starts_[i].time > now_) starts_[i].time = SimTime::never();
  }
}

namespace {

// S[i][T] is the longest walk of T moves that ends at rank i: it begins at a rank's join, goes d hops, each of a send
// and a latency, and stands for a send in the other T - d, all of them best at the slowest sender that it passes. With
// G what a lap gains over standing p times at the slowest of all, a lap more never loses where G >= 0, and d > T - p is
// enough; where G < 0, a second lap never wins after the first has met all, and d < 2 p - 1 is. Of equal walks the one
// of most hops counts, as RingSteps prefers arrivals.
//
// Standing at a sender of at least c is never better than what it can get, so the best is a maximum over send times c,
// of walks that pass such a sender: for each c, one over a window that slides round the ring.
class LongestWalks {
 public:
  explicit LongestWalks(const RingCollective& collective)
      : collective_(collective), p_(static_cast<int64_t>(collective.ranks.size())) {
    before_.reserve(static_cast<size_t>(p_));
    for (int64_t i = 0; i < p_; ++i) {
      before_.push_back(lap_);
      lap_ += collective.ranks[i].send_time.ps() + collective.ranks[i].latency.ps();
    }
    for (const RingRank& rank : collective.ranks) sends_.push_back(rank.send_time);
    std::sort(sends_.begin(), sends_.end());
    sends_.erase(std::unique(sends_.begin(), sends_.end()), sends_.end());
    const int64_t steps = collective.exchange.num_steps;
    const bool gains = lap_ >= p_ * sends_.back().ps();
    most_hops_ = gains ? steps : std::min(steps, 2 * p_ - 2);
    fewest_hops_ = gains ? steps - p_ + 1 : 0;
  }

  std::vector<RingSteps::Start> ends() {
    best_.assign(static_cast<size_t>(p_), Walk());
    for (const SimTime send : sends_) look_at(send);
    std::vector<RingSteps::Start> ends;
    for (const Walk& walk : best_) ends.push_back({SimTime::from_ps(walk.end_ps), static_cast<int32_t>(walk.first)});
    return ends;
  }

 private:
  struct Walk {
    int64_t end_ps = -1;
    int64_t num_hops = 0;
    int64_t first = 0;
  };

  // Places u = 0, 1, ... go round the ring lap by lap.
  int64_t hops_up_to(int64_t u) const { return before_[u % p_] + (u / p_ - end_lap()) * lap_; }
  // Counted from the lap in which the walks end, sums stay within what the clock holds.
  int64_t end_lap() const { return (most_hops_ + p_ - 1) / p_; }

  // Walks that stand at senders of at least `send`, as if they took it.
  void look_at(SimTime send) {
    const int64_t c = send.ps(), steps = collective_.exchange.num_steps;
    const int64_t first_end = end_lap() * p_;  // rank 0's place
    // A walk from u to e takes join[u] + hops_up_to(e) - hops_up_to(u) + (steps - (e - u)) c.
    const auto value = [&](int64_t u) {
      return collective_.ranks[u % p_].join.ps() - hops_up_to(u) + (u - first_end) * c;
    };
    window_.clear();
    int64_t next = first_end - most_hops_;  // to be looked at, once a sender slow enough is behind
    int64_t slow = -1;                      // the last such place; there is one in each lap
    for (int64_t u = first_end; slow < 0; --u) slow = collective_.ranks[u % p_].send_time >= send ? u : slow;
    for (int64_t i = 0; i < p_; ++i) {
      const int64_t e = first_end + i;
      if (collective_.ranks[i].send_time >= send) slow = e;
      for (; next <= std::min(slow, e - fewest_hops_); ++next) {
        const int64_t of_next = value(next);
        while (!window_.empty() && window_.back().value < of_next) window_.pop_back();
        window_.push_back({next, of_next});
      }
      while (!window_.empty() && window_.front().place < e - most_hops_) window_.pop_front();
      if (window_.empty()) continue;
      const int64_t place = window_.front().place, num_hops = e - place;
      const int64_t end_ps = window_.front().value + hops_up_to(e) + (steps - i) * c;
      Walk& best = best_[i];
      if (end_ps < best.end_ps || (end_ps == best.end_ps && num_hops <= best.num_hops)) continue;
      best = {end_ps, num_hops, place % p_};
    }
  }

  struct Candidate {
    int64_t place;
    int64_t value;
  };
  const RingCollective& collective_;
  int64_t p_;
  int64_t lap_ = 0;
  std::vector<int64_t> before_;  // of the hops from rank 0 to each
  std::vector<SimTime> sends_;   // distinct, ascending
  int64_t most_hops_ = 0, fewest_hops_ = 0;
  std::deque<Candidate> window_;  // falling values, the earliest of equal ones
  std::vector<Walk> best_;        // per rank
};

}  // namespace

std::vector<RingSteps::Start> ring_ends(const RingCollective& collective) {
  if (collective.ranks.size() > 1) return LongestWalks(collective).ends();
  // One device stands for all ranks, as in folded tensor-parallel groups: it hears of itself in every step.
  const int64_t step_ps = collective.ranks[0].send_time.ps() + collective.ranks[0].latency.ps();
  return {{SimTime::from_ps(collective.ranks[0].join.ps() + collective.exchange.num_steps * step_ps), 0}};
}

}  // namespace rostam::runtime
