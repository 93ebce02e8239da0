#include "control/job_profile.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace rostam::control {

namespace {

constexpr double kAlike = 0.01;     // own: of what a link carries in an iteration
constexpr double kRounding = 1e-4;  // own: of an iteration

}  // namespace

bool JobProfile::learn(std::vector<JobPhase> phases, const Period& iteration) {
  Seen seen;
  seen.length_ps = static_cast<double>((iteration.end - iteration.begin).ps());
  for (const JobPhase& phase : phases) {
    seen.alone_ps += phase.length_ps;
    for (const LinkLoad& one : phase.loads) seen.busy_ps[one.link] += one.share * phase.length_ps;
  }
  seen.phases = std::move(phases);
  if (!is_alike(seen, kept_)) {
    slowest_ = kept_ = std::move(seen);
    return true;
  }
  if (seen.lost_ps() > slowest_.lost_ps()) slowest_ = seen;
  if (seen.lost_ps() > kept_.lost_ps() + kRounding * seen.length_ps) return false;
  kept_ = std::move(seen);
  return true;
}

double JobProfile::weight() const {
  const double lost_ps = slowest_.lost_ps();
  if (lost_ps <= kept_.lost_ps() + kRounding * kept_.length_ps) return 1;
  return std::clamp((slowest_.length_ps - kept_.alone_ps) / lost_ps, 0.0, 1.0);
}

bool JobProfile::is_alike(const Seen& one, const Seen& other) {
  if (one.busy_ps.size() != other.busy_ps.size() || other.length_ps == 0) return false;
  return std::equal(one.busy_ps.begin(), one.busy_ps.end(), other.busy_ps.begin(), [](const auto& a, const auto& b) {
    return a.first == b.first && std::abs(a.second - b.second) <= kAlike * b.second;
  });
}

}  // namespace rostam::control
