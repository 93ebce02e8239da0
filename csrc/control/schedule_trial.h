// ScheduleTrial: whether a job's iterations go by the phases found in them, or on circuits that are set once, as timed.
// One trial for all that set a job's circuits, each of its rails say: what one of them tries counts for all.
// Example: trial.on_end(now, iteration) is kFind after one iteration, kFollow after two, kKeep or kGiveUp after four,
// then kKeep or kFollow after six.
#pragma once

#include <cstdint>

#include "sim/sim_time.h"

namespace rostam::control {

// Model: an iteration to begin with and one to time, then the same by phases, which stay where they take no longer.
// Else circuits are as before for two more, since iterations on them need not be alike where pairs take turns: the
// faster way of the last two that were timed stays.
class ScheduleTrial {
 public:
  enum class Next : uint8_t { kFind, kWait, kFollow, kKeep, kGiveUp };

  bool is_over() const { return num_ends_ < 0; }
  // An iteration has ended. Returns what to do in the next one: the same to all that tell of the same end.
  Next on_end(SimTime now, int32_t iteration);
  // The iteration under way is none to time: the one before it counts as not begun.
  void cut() { num_ends_ = num_ends_ < 0 ? num_ends_ : num_ends_ / 2 * 2; }
  // There is nothing to try.
  void end() { num_ends_ = -1; }

 private:
  Next next_after(SimTime took);

  int32_t num_ends_ = 0;    // -1 when it is over
  int32_t iteration_ = -1;  // that ended last
  Next next_ = Next::kWait;
  SimTime last_;          // when the last iteration ended
  SimTime once_, tried_;  // how long one takes on circuits that are set once, and by phases
};

}  // namespace rostam::control
