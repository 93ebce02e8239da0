// SimTime: simulated time as whole picoseconds, so that equal durations end at equal instants.
// A class and not a typedef: times, bytes and rates must not mix by accident. Range +-106 days; sums that leave it
// are a RangeError, never another time.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "sim/errors.h"

namespace rostam {

constexpr double kMaxPs = 9.2e18;  // 106 days, a hair below what int64 holds

[[noreturn]] inline void throw_clock_overflow() {
  throw RangeError(
      "simulated time passes its end, 106 days; look for a lost unit in a bandwidth, latency, duration or size");
}

class SimTime {
 public:
  constexpr SimTime() = default;

  static constexpr SimTime from_ps(int64_t ps) { return SimTime(ps); }
  static constexpr SimTime zero() { return SimTime(0); }
  static constexpr SimTime never() { return SimTime(std::numeric_limits<int64_t>::max()); }

  // Whole picoseconds out of a calculation. Throws: RangeError beyond +-106 days.
  static SimTime from_whole_ps(double ps) {
    if (!(std::abs(ps) < kMaxPs)) throw_clock_overflow();
    return SimTime(static_cast<int64_t>(ps));
  }

  // Nearest picosecond. Throws: ConfigError if not finite or beyond +-106 days.
  static SimTime from_seconds(double seconds) {
    const double ps = seconds * 1e12;
    if (!(std::abs(ps) < kMaxPs)) ROSTAM_THROW(ConfigError, "time " << seconds << " s is outside +-106 days");
    return SimTime(std::llround(ps));
  }

  constexpr int64_t ps() const { return ps_; }
  constexpr double seconds() const { return static_cast<double>(ps_) * 1e-12; }

  // Throws: RangeError beyond +-106 days.
  constexpr SimTime operator+(SimTime other) const {
    int64_t sum = 0;
    if (__builtin_expect(__builtin_add_overflow(ps_, other.ps_, &sum), false)) throw_clock_overflow();
    return SimTime(sum);
  }
  constexpr SimTime operator-(SimTime other) const {
    int64_t difference = 0;
    if (__builtin_expect(__builtin_sub_overflow(ps_, other.ps_, &difference), false)) throw_clock_overflow();
    return SimTime(difference);
  }
  constexpr SimTime times(int64_t count) const {
    int64_t product = 0;
    if (__builtin_mul_overflow(ps_, count, &product)) throw_clock_overflow();
    return SimTime(product);
  }
  SimTime& operator+=(SimTime other) { return *this = *this + other; }
  constexpr bool operator==(SimTime other) const { return ps_ == other.ps_; }
  constexpr bool operator!=(SimTime other) const { return ps_ != other.ps_; }
  constexpr bool operator<(SimTime other) const { return ps_ < other.ps_; }
  constexpr bool operator<=(SimTime other) const { return ps_ <= other.ps_; }
  constexpr bool operator>(SimTime other) const { return ps_ > other.ps_; }
  constexpr bool operator>=(SimTime other) const { return ps_ >= other.ps_; }

 private:
  explicit constexpr SimTime(int64_t ps) : ps_(ps) {}
  int64_t ps_ = 0;
};

// Picoseconds to move `bytes` at `bytes_per_s`, rounded up to 1 ps and never 0 for bytes > 0. An excess below 1e-6 ps
// over a whole picosecond is rounding noise of the division, not time.
// Units: bytes may be fractional (the rest of a flow). REQUIRES: bytes_per_s > 0.
inline double transmit_ps(double bytes, double bytes_per_s) {
  if (bytes <= 0) return 0;
  const double ps = bytes / bytes_per_s * 1e12;
  const double nearest = std::nearbyint(ps);
  const double slack = 1e-6 + 4e-16 * ps;
  const double whole = std::abs(ps - nearest) <= slack ? nearest : std::ceil(ps);
  return whole < 1 ? 1 : whole;
}

// The same as a time. Throws: RangeError if the duration is beyond 106 days.
inline SimTime transmit_time(double bytes, double bytes_per_s) {
  const double ps = transmit_ps(bytes, bytes_per_s);
  if (!(ps < kMaxPs)) {
    ROSTAM_THROW(RangeError, bytes << " bytes at " << bytes_per_s
                                   << " bytes/s last beyond 106 days, the end of simulated time; look for a lost unit "
                                      "in a bandwidth or size");
  }
  return SimTime::from_ps(static_cast<int64_t>(ps));
}

// When bytes that are sent from `start` on are through; never() if that lies beyond the end of simulated time.
inline SimTime transmit_end(SimTime start, double bytes, double bytes_per_s) {
  const double ps = transmit_ps(bytes, bytes_per_s);
  if (!(ps + static_cast<double>(start.ps()) < kMaxPs)) return SimTime::never();
  return start + SimTime::from_ps(static_cast<int64_t>(ps));
}

}  // namespace rostam
