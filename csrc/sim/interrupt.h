// Interrupt: how long work lets its caller end it. The caller opens a scope on its thread that says how it is asked;
// every loop that may take long calls poll_interrupt(), which asks ten times a second and lets what that throws pass.
// Without a scope it does nothing, and no result depends on it.
// Example: InterruptScope scope(stop_on_signal); for (...) { poll_interrupt(); ... }
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

namespace rostam {

class InterruptScope {
 public:
  // ask: throws to end the work. REQUIRES: scopes of a thread end in reverse order.
  explicit InterruptScope(std::function<void()> ask);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  friend void poll_interrupt();
  using Clock = std::chrono::steady_clock;

  std::function<void()> ask_;
  Clock::time_point last_ = Clock::now();
  InterruptScope* outer_;
};

// REQUIRES: what outlives the work is as it should be, should the work end here. Cost: a look at the clock.
void poll_interrupt();

// The same for steps that are shorter than such a look: one in 64, from the first on.
class InterruptPoll {
 public:
  void operator()() {
    if (num_steps_++ % 64 == 0) poll_interrupt();
  }

 private:
  uint32_t num_steps_ = 0;
};

}  // namespace rostam
