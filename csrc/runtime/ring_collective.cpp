#include "runtime/ring_collective.h"

#include <algorithm>

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

}  // namespace rostam::runtime
