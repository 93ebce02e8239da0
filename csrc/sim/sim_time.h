// SimTime: simulated time as whole picoseconds, so that equal durations end at equal instants.
// A class and not a typedef: times, bytes and rates must not mix by accident. Range +-106 days.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "sim/errors.h"

namespace rostam {

class SimTime {
 public:
  constexpr SimTime() = default;

  static constexpr SimTime from_ps(int64_t ps) { return SimTime(ps); }
  static constexpr SimTime zero() { return SimTime(0); }
  static constexpr SimTime never() { return SimTime(std::numeric_limits<int64_t>::max()); }

  // Nearest picosecond. Throws: ConfigError if not finite or beyond +-106 days.
  static SimTime from_seconds(double seconds) {
    const double ps = seconds * 1e12;
    if (!(std::abs(ps) < 9.2e18)) ROSTAM_THROW(ConfigError, "time " << seconds << " s is outside +-106 days");
    return SimTime(std::llround(ps));
  }

  constexpr int64_t ps() const { return ps_; }
  constexpr double seconds() const { return static_cast<double>(ps_) * 1e-12; }

  constexpr SimTime operator+(SimTime other) const { return SimTime(ps_ + other.ps_); }
  constexpr SimTime operator-(SimTime other) const { return SimTime(ps_ - other.ps_); }
  SimTime& operator+=(SimTime other) {
    ps_ += other.ps_;
    return *this;
  }
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

// Time to move `bytes` at `bytes_per_s`, rounded up to 1 ps and never 0 for bytes > 0. An excess
// below 1e-6 ps over a whole picosecond is rounding noise of the division, not time.
// Units: bytes may be fractional (what is left of a flow). REQUIRES: bytes_per_s > 0.
// Throws: ConfigError if the duration is beyond 106 days.
inline SimTime transmit_time(double bytes, double bytes_per_s) {
  if (bytes <= 0) return SimTime::zero();
  const double ps = bytes / bytes_per_s * 1e12;
  if (!(ps < 9.2e18))
    ROSTAM_THROW(ConfigError, bytes << " bytes at " << bytes_per_s << " bytes/s last beyond 106 days");
  const double nearest = std::nearbyint(ps);
  const double slack = 1e-6 + 4e-16 * ps;
  const double whole = std::abs(ps - nearest) <= slack ? nearest : std::ceil(ps);
  return SimTime::from_ps(whole < 1 ? 1 : static_cast<int64_t>(whole));
}

}  // namespace rostam
