#include "sim/interrupt.h"

#include <utility>

namespace rostam {

namespace {

constexpr std::chrono::milliseconds kPause{100};

// Of this thread's work: loops are too deep below the caller to be handed it.
thread_local InterruptScope* innermost = nullptr;

}  // namespace

InterruptScope::InterruptScope(std::function<void()> ask) : ask_(std::move(ask)), outer_(innermost) {
  innermost = this;
}

InterruptScope::~InterruptScope() { innermost = outer_; }

void poll_interrupt() {
  InterruptScope* const scope = innermost;
  if (scope == nullptr) return;
  const InterruptScope::Clock::time_point now = InterruptScope::Clock::now();
  if (now - scope->last_ < kPause) return;
  scope->last_ = now;
  scope->ask_();
}

}  // namespace rostam
