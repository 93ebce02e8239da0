#include "runtime/ring_collective.h"

#include <algorithm>
#include <deque>

namespace rostam::runtime {

bool RingCollective::fits_clock(SimTime now) const {
  double slowest_ps = 0;
  for (size_t i = 0; i < send_times.size(); ++i) {
    const auto latency_ps = static_cast<double>(latencies[i].ps());
    slowest_ps = std::max(slowest_ps, static_cast<double>(send_times[i].ps()) + latency_ps);
  }
  return static_cast<double>(now.ps()) + slowest_ps * exchange.num_steps < kMaxPs;
}

void RingCollective::add_load(const Ring& ring, SimTime now, bool counts_unfinished,
                              std::vector<RingLoad>& loads) const {
  const auto bytes = static_cast<double>(exchange.wire_bytes);
  if (end <= now) {
    for (size_t i = 0; i < loads.size(); ++i) {
      loads[i].bytes += bytes * exchange.num_steps;
      loads[i].busy_ps += send_times[i].ps() * exchange.num_steps;
    }
    return;
  }
  RingSteps steps(*this, now);
  for (int32_t step = 0; step < exchange.num_steps; ++step) {
    const std::vector<RingSteps::Start>& starts = steps.starts();
    for (size_t i = 0; i < starts.size(); ++i) {
      if (starts[i].time == SimTime::never()) continue;
      const SimTime passed = std::min(send_times[i], now - starts[i].time);
      loads[i].busy_ps += passed.ps();
      if (passed == send_times[i]) {
        loads[i].bytes += bytes;
      } else if (counts_unfinished) {
        loads[i].bytes += ring.bytes_per_s[i] * passed.seconds();
      }
    }
    steps.advance();
  }
}

RingSteps::RingSteps(const RingCollective& collective, SimTime now) : collective_(collective), now_(now) {
  for (size_t i = 0; i < collective.joins.size(); ++i) {
    const SimTime join = collective.joins[i];
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
    const SimTime sent = starts_[i].time + collective_.send_times[i];
    const SimTime arrival = before.time + collective_.send_times[k] + collective_.latencies[k];
    if (arrival >= sent) starts_[i].decided_by = before.decided_by;
    starts_[i].time = std::max(sent, arrival);
    if (starts_[i].time > now_) starts_[i].time = SimTime::never();
  }
}

namespace {

// With one send time c for all, S[i][T] = T c + max over d <= T of join[i-d] + the latencies of the d hops up to i. A
// lap more never loses, so d > T - p is enough: a maximum over a window that slides round the ring. Of equal ones the
// most hops count, as RingSteps prefers arrivals.
std::vector<RingSteps::Start> ends_of_equal_sends(const RingCollective& collective) {
  const auto p = static_cast<int64_t>(collective.joins.size());
  const int64_t num_steps = collective.exchange.num_steps, c = collective.send_times[0].ps();
  int64_t lap = 0;
  std::vector<int64_t> before;  // latencies of the hops from rank 0 to each
  for (const SimTime latency : collective.latencies) {
    before.push_back(lap);
    lap += latency.ps();
  }
  const int64_t laps = num_steps / p, rest = num_steps % p;
  // Index u is rank u mod p, a lap further from p on; the window of rank i is u = i + p - rest ... i + 2 p - rest - 1,
  // and rank i itself stands at u = i + p + laps * p.
  const auto hops_up_to = [&](int64_t u) { return before[u % p] + u / p * lap; };
  const auto value = [&](int64_t u) { return collective.joins[u % p].ps() - hops_up_to(u); };
  std::deque<int64_t> window;  // falling values, the earliest of equal ones
  std::vector<RingSteps::Start> ends(p);
  for (int64_t u = p - rest; u <= 3 * p - rest - 2; ++u) {
    while (!window.empty() && value(window.back()) < value(u)) window.pop_back();
    window.push_back(u);
    const int64_t i = u - (2 * p - rest - 1);
    if (i < 0) continue;
    while (window.front() < i + p - rest) window.pop_front();
    const int64_t first = window.front();
    const int64_t end_ps = num_steps * c + value(first) + hops_up_to(i + p + laps * p);
    ends[i] = {SimTime::from_ps(end_ps), static_cast<int32_t>(first % p)};
  }
  return ends;
}

}  // namespace

std::vector<RingSteps::Start> ring_ends(const RingCollective& collective) {
  const std::vector<SimTime>& sends = collective.send_times;
  const bool are_equal = std::all_of(sends.begin(), sends.end(), [&](SimTime one) { return one == sends[0]; });
  if (are_equal) return ends_of_equal_sends(collective);
  RingSteps steps(collective, SimTime::never());
  for (int32_t step = 0; step < collective.exchange.num_steps; ++step) steps.advance();
  return steps.starts();
}

}  // namespace rostam::runtime
