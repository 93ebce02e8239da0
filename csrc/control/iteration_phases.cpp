#include "control/iteration_phases.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "sim/errors.h"

namespace rostam::control {

namespace {

using circuits::Setting;

// A stretch of an iteration's messages.
struct Stretch {
  std::map<int32_t, std::pair<double, int64_t>> pairs;  // bytes and messages of each
  SimTime pause;                                        // before it
};

class PhaseFinder {
 public:
  PhaseFinder(const circuits::CircuitPlanner& planner, const circuits::PairList& pairs, const PhaseCosts& costs)
      : planner_(planner), pairs_(pairs), costs_(costs) {}

  std::vector<Phase> run(const std::vector<PairMessage>& messages) {
    split(messages);
    std::vector<std::vector<Stretch>> groups;
    for (Stretch& one : stretches_) {
      if (!groups.empty() && joins(groups.back(), one)) {
        groups.back().push_back(std::move(one));
      } else {
        groups.push_back({std::move(one)});
      }
    }
    std::vector<Stretch> all;
    double apart = 0;
    for (const auto& group : groups) {
      apart += serving_time(group) + (all.empty() ? 0 : visible_delay(group.front()));
      all.insert(all.end(), group.begin(), group.end());
    }
    if (groups.size() > 1 && serving_time(all) <= apart) groups = {std::move(all)};
    std::vector<Phase> phases;
    for (const auto& group : groups) phases.push_back(phase_of(group));
    return phases;
  }

 private:
  void split(const std::vector<PairMessage>& messages) {
    for (size_t first = 0; first < messages.size();) {
      size_t end = first;
      Stretch burst;
      for (; end < messages.size() && messages[end].burst == messages[first].burst; ++end) add(messages[end], burst);
      if (counts_of({burst}).empty()) {
        split_burst(messages, first, end);
      } else {
        stretches_.push_back(std::move(burst));
      }
      first = end;
    }
  }

  // Cuts where the next pair would leave one without a circuit.
  void split_burst(const std::vector<PairMessage>& messages, size_t first, size_t end) {
    Stretch now;
    for (size_t m = first; m < end; ++m) {
      if (!now.pairs.empty() && now.pairs.count(messages[m].pair) == 0) {
        Stretch more = now;
        add(messages[m], more);
        if (counts_of({more}).empty()) stretches_.push_back(std::exchange(now, Stretch()));
      }
      add(messages[m], now);
    }
    stretches_.push_back(std::move(now));
  }

  static void add(const PairMessage& message, Stretch& stretch) {
    if (stretch.pairs.empty()) stretch.pause = message.pause;
    auto& [num_bytes, num_messages] = stretch.pairs[message.pair];
    num_bytes += message.num_bytes;
    ++num_messages;
  }

  bool joins(const std::vector<Stretch>& group, const Stretch& next) {
    const auto has_all = [&](const Stretch& one) {
      return std::includes(one.pairs.begin(), one.pairs.end(), next.pairs.begin(), next.pairs.end(),
                           [](const auto& a, const auto& b) { return a.first < b.first; });
    };
    if (std::any_of(group.begin(), group.end(), has_all)) return true;
    std::vector<Stretch> both = group;
    both.push_back(next);
    return serving_time(both) <= serving_time(group) + serving_time({next}) + visible_delay(next);
  }

  // What of a reconfiguration the pause before a stretch does not hide.
  double visible_delay(const Stretch& next) const { return std::max(0.0, costs_.delay_s - next.pause.seconds()); }

  // Circuits of each pair that serve the stretches together; empty if a pair finds none, and no network either.
  std::vector<int32_t> counts_of(const std::vector<Stretch>& group) const {
    std::vector<double> demand(static_cast<size_t>(pairs_.size()), 0);
    for (const Stretch& one : group) {
      for (const auto& [pair, amount] : one.pairs) demand[pair] += std::max(amount.first, 1.0);
    }
    std::vector<int32_t> counts(demand.size(), 0);
    for (const circuits::Circuit& one : planner_.plan(demand, {})) ++counts[one.pair];
    for (size_t p = 0; p < demand.size() && costs_.network_bytes_per_s == 0; ++p) {
      if (demand[p] > 0 && counts[p] == 0) return {};
    }
    return counts;
  }

  // Of the stretches one after another on circuits for all of them; without end if there are none such.
  double serving_time(const std::vector<Stretch>& group) const {
    const std::vector<int32_t> counts = counts_of(group);
    if (counts.empty()) return std::numeric_limits<double>::infinity();
    double seconds = 0;
    for (const Stretch& one : group) {
      double slowest = 0;
      std::map<int32_t, double> out, in;  // of ends on the network
      for (const auto& [pair, amount] : one.pairs) {
        if (counts[pair] > 0) {
          slowest = std::max(slowest, amount.first / counts[pair] / costs_.circuit_bytes_per_s);
        } else {
          out[pairs_.src[pair]] += amount.first / costs_.network_bytes_per_s;
          in[pairs_.dst[pair]] += amount.first / costs_.network_bytes_per_s;
        }
      }
      for (const auto* side : {&out, &in}) {
        for (const auto& [end, busy_s] : *side) slowest = std::max(slowest, busy_s);
      }
      seconds += slowest;
    }
    return seconds;
  }

  static Phase phase_of(const std::vector<Stretch>& group) {
    std::map<int32_t, std::pair<double, int64_t>> sums;
    for (const Stretch& one : group) {
      for (const auto& [pair, amount] : one.pairs) {
        sums[pair].first += amount.first;
        sums[pair].second += amount.second;
      }
    }
    Phase phase;
    for (const auto& [pair, amount] : sums) {
      phase.pairs.push_back(pair);
      phase.num_bytes.push_back(std::max(amount.first, 1.0));
      phase.num_messages.push_back(amount.second);
    }
    return phase;
  }

  const circuits::CircuitPlanner& planner_;
  const circuits::PairList& pairs_;
  PhaseCosts costs_;
  std::vector<Stretch> stretches_;
};

}  // namespace

std::vector<Phase> find_phases(const std::vector<PairMessage>& messages, const circuits::CircuitPlanner& planner,
                               const circuits::PairList& pairs, const PhaseCosts& costs) {
  return PhaseFinder(planner, pairs, costs).run(messages);
}

void PhaseFollower::follow(std::vector<Phase> phases, const std::vector<int64_t>& num_active) {
  phases_ = std::move(phases);
  total_.assign(num_active.size(), 0);
  for (const Phase& phase : phases_) {
    for (size_t i = 0; i < phase.pairs.size(); ++i) total_[phase.pairs[i]] += phase.num_messages[i];
  }
  done_.assign(num_active.size(), 0);
  for (size_t p = 0; p < done_.size(); ++p) {
    if (total_[p] > 0) done_[p] = -num_active[p];
  }
  due_.assign(num_active.size(), 0);
  last_phase_.assign(num_active.size(), -1);
  current_ = 0;
  if (phases_.empty()) return;
  begin_phase();
  advance_over_done();
}

bool PhaseFollower::is_same(const std::vector<PairMessage>& messages) const {
  std::vector<int64_t> counts(total_.size(), 0);
  for (const PairMessage& one : messages) ++counts[one.pair];
  return counts == total_;
}

bool PhaseFollower::on_end(int32_t pair) {
  if (total_[pair] == 0) return false;  // another job's
  ++done_[pair];
  if (last_phase_[pair] == num_begun_ && done_[pair] == due_[pair]) --num_unfinished_;
  const size_t before = current_;
  const bool is_over = num_unfinished_ == 0;
  advance_over_done();
  return is_over && current_ != before;
}

// After it `due_` holds what pairs of the current phase must have sent by its end.
void PhaseFollower::begin_phase() {
  const Phase& phase = phases_[current_];
  num_unfinished_ = 0;
  ++num_begun_;
  for (size_t i = 0; i < phase.pairs.size(); ++i) {
    const int32_t pair = phase.pairs[i];
    due_[pair] += phase.num_messages[i];
    last_phase_[pair] = num_begun_;
    num_unfinished_ += done_[pair] < due_[pair];
  }
}

void PhaseFollower::advance_over_done() {
  while (num_unfinished_ == 0) {
    if (++current_ == phases_.size()) {
      current_ = 0;
      for (size_t p = 0; p < total_.size(); ++p) {
        done_[p] -= total_[p];
        due_[p] -= total_[p];
      }
    }
    begin_phase();
  }
}

}  // namespace rostam::control
