// Interrupt: how a long run lets its caller end it. Whoever runs events calls poll() for each; the caller is asked now
// and then, by the clock on the wall, and throws if the run is to stop. What is simulated does not depend on it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

namespace rostam::runtime {

class Interrupt {
 public:
  // ask: throws to end the run; none is never asked.
  explicit Interrupt(std::function<void()> ask) : ask_(std::move(ask)) {}

  void poll() {
    if (++num_polls_ % kEvery != 0 || !ask_) return;
    const Clock::time_point now = Clock::now();
    if (now - last_ < kPause) return;
    last_ = now;
    ask_();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr uint32_t kEvery = 64;  // events between two looks at the clock
  static constexpr std::chrono::milliseconds kPause{100};

  std::function<void()> ask_;
  uint32_t num_polls_ = 0;
  Clock::time_point last_ = Clock::now();
};

}  // namespace rostam::runtime
