// Phases of a known iteration: which circuits serve which stretch of it, found ahead, since training repeats.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "circuits/planner.h"
#include "control/pair_traffic.h"

namespace rostam::control {

// A stretch of an iteration that one setting of the circuits serves.
struct Phase {
  std::vector<int32_t> pairs;         // ascending
  std::vector<double> num_bytes;      // of each
  std::vector<int64_t> num_messages;  // of each
};

struct PhaseCosts {
  double circuit_bytes_per_s = 0;  // of one circuit
  double delay_s = 0;              // of a reconfiguration
  double network_bytes_per_s = 0;  // of each end of pairs, for all of its pairs without a circuit; 0: these wait
};

// Model: messages between two times at which nothing was under way are a burst, cut where its pairs no longer find
// circuits all together, unless a network serves the others; a burst lasts as long as its slowest pair on its circuits,
// or its busiest end on the network. From the first on a burst joins the
// phase before it where that costs less than circuits of its own and what the pause between them does not hide of the
// reconfiguration; a burst between pairs of the phase always does. One phase for all, where the sum is not less.
// Cost: a plan of the circuits for each burst with new pairs. Source: own; tests/control/test_schedules.py.
std::vector<Phase> find_phases(const std::vector<PairMessage>& messages, const circuits::CircuitPlanner& planner,
                               const circuits::PairList& pairs, const PhaseCosts& costs);

// Follows one job through the phases of its iterations by the messages that have left their sources, counted pair by
// pair: the next phase begins when all of a phase's messages are through, whenever that is.
class PhaseFollower {
 public:
  bool is_known() const { return !phases_.empty(); }

  // From now on these phases repeat. num_active: messages of each pair under way, which are of the iteration before.
  void follow(std::vector<Phase> phases, const std::vector<int64_t>& num_active);
  // The same from the first one on.
  void begin_anew(const std::vector<int64_t>& num_active) { follow(std::move(phases_), num_active); }
  // Whether an iteration of these messages is the one that is followed.
  bool is_same(const std::vector<PairMessage>& messages) const;

  // A message of a pair has left its source. Returns whether another phase has begun.
  bool on_end(int32_t pair);

  // The phase that runs, or is next.
  const Phase& current() const { return phases_[current_]; }
  bool is_at_first() const { return current_ == 0; }
  size_t num_phases() const { return phases_.size(); }

 private:
  void begin_phase();
  void advance_over_done();

  std::vector<Phase> phases_;
  std::vector<int64_t> total_;       // messages of each pair in an iteration
  std::vector<int64_t> done_;        // of each pair in this iteration
  std::vector<int64_t> due_;         // of each pair by the end of the phase
  std::vector<int64_t> last_phase_;  // that each pair was in, by num_begun_
  int64_t num_begun_ = 0;
  size_t current_ = 0;
  int64_t num_unfinished_ = 0;  // pairs of the phase
};

}  // namespace rostam::control
