#include "control/schedule_trial.h"

#include <utility>

namespace rostam::control {

ScheduleTrial::Next ScheduleTrial::on_end(SimTime now, int32_t iteration) {
  if (now == last_ && iteration == iteration_) return next_;
  iteration_ = iteration;
  const SimTime took = now - std::exchange(last_, now);
  next_ = is_over() ? Next::kKeep : next_after(took);
  return next_;
}

ScheduleTrial::Next ScheduleTrial::next_after(SimTime took) {
  switch (++num_ends_) {
    case 1:
      return Next::kFind;
    case 2:
      once_ = took;
      return Next::kFollow;
    case 4:
      tried_ = took;
      if (tried_ > once_) return Next::kGiveUp;
      end();
      return Next::kKeep;
    case 6:
      end();
      return took > tried_ ? Next::kFollow : Next::kKeep;
    default:
      return Next::kWait;
  }
}

}  // namespace rostam::control
