#include "control/phase_model.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

namespace rostam::control {

namespace {

constexpr double kRestPs = 1e-3;          // less is rounding
constexpr double kRest = 1e-12;           // of an iteration, likewise
constexpr double kLeastGain = 1e-4;       // of an iteration; own: below, holds would follow latencies
constexpr size_t kMostHolds = 72;         // steps of 5 degrees of an iteration: Cassini, section 5
constexpr double kMostIterations = 1000;  // of the shortest, that are walked through; own
constexpr double kLeastExcess = 1e-9;     // of a link

}  // namespace

void PhaseModel::set_phases(int32_t job, std::vector<JobPhase> phases) {
  Job& own = jobs_[static_cast<size_t>(job)];
  own.phases = std::move(phases);
  own.period_ps = 0;
  for (const JobPhase& phase : own.phases) own.period_ps += phase.length_ps;
  is_numbered_ = false;
}

void PhaseModel::begin(int32_t job, double wait_ps) {
  Job& own = jobs_[static_cast<size_t>(job)];
  own.at = Position();
  own.at.is_there = own.period_ps > 0;
  own.at.wait_ps = wait_ps;
  if (own.at.is_there) enter_phase(own, own.at, 0);
}

void PhaseModel::leave(int32_t job) { jobs_[static_cast<size_t>(job)].at = Position(); }

void PhaseModel::enter_phase(const Job& job, Position& at, size_t phase) const {
  at.phase = phase;
  at.left_ps = job.phases[phase].length_ps;
}

// Links that one job loads, or that can carry all of what jobs may put on them at a time, slow no one down; of those
// that are loaded alike one is enough.
void PhaseModel::renumber_links() {
  if (std::exchange(is_numbered_, true)) return;
  using Place = std::pair<size_t, size_t>;                      // job, phase
  std::map<int32_t, std::vector<std::pair<Place, double>>> of;  // each link
  for (size_t j = 0; j < jobs_.size(); ++j) {
    jobs_[j].loads.assign(jobs_[j].phases.size(), {});
    for (size_t p = 0; p < jobs_[j].phases.size(); ++p) {
      for (const LinkLoad& one : jobs_[j].phases[p].loads) of[one.link].push_back({{j, p}, one.share});
    }
  }
  std::set<std::vector<std::pair<Place, double>>> kept;
  for (const auto& [link, loads] : of) {
    std::map<size_t, double> most;
    for (const auto& [place, share] : loads) most[place.first] = std::max(most[place.first], share);
    double sum = 0;
    for (const auto& [job, share] : most) sum += share;
    if (most.size() > 1 && sum > 1 + kLeastExcess) kept.insert(loads);
  }
  num_links_ = 0;
  for (const auto& loads : kept) {
    for (const auto& [place, share] : loads) jobs_[place.first].loads[place.second].emplace_back(num_links_, share);
    ++num_links_;
  }
}

// The job, and all that are joined to it by links.
std::vector<int32_t> PhaseModel::neighbours_of(int32_t job) const {
  std::vector<uint8_t> has_link(num_links_, 0), is_in(jobs_.size(), 0);
  std::vector<int32_t> found = {job};
  is_in[static_cast<size_t>(job)] = 1;
  for (size_t k = 0; k < found.size(); ++k) {
    for (const auto& loads : jobs_[static_cast<size_t>(found[k])].loads) {
      for (const auto& [link, share] : loads) has_link[link] = 1;
    }
    for (size_t j = 0; j < jobs_.size(); ++j) {
      bool meets = false;
      for (const auto& loads : jobs_[j].loads) {
        for (const auto& [link, share] : loads) meets = meets || has_link[link] != 0;
      }
      if (meets && jobs_[j].at.is_there && std::exchange(is_in[j], uint8_t{1}) == 0) {
        found.push_back(static_cast<int32_t>(j));
      }
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

void PhaseModel::advance(double time_ps) {
  renumber_links();
  Positions now;
  std::vector<int32_t> all;
  for (size_t j = 0; j < jobs_.size(); ++j) {
    now.push_back(jobs_[j].at);
    all.push_back(static_cast<int32_t>(j));
  }
  walk(now, all, time_ps, false, nullptr);
  for (size_t j = 0; j < jobs_.size(); ++j) jobs_[j].at = now[j];
}

// Returns what the jobs lose together against their phases alone, each in iterations of its own.
double PhaseModel::walk(Positions& positions, const std::vector<int32_t>& jobs, double time_ps, bool repeats,
                        Edges* edges) const {
  std::vector<double> loads(num_links_, 0), speeds(jobs.size(), 1);
  double lost = 0, passed = 0;
  while (passed < time_ps) {
    const auto runs = [](const Position& at) { return at.is_there && !at.is_through && at.wait_ps <= 0; };
    std::fill(loads.begin(), loads.end(), 0);
    for (const int32_t j : jobs) {
      const Position& at = positions[static_cast<size_t>(j)];
      if (!runs(at)) continue;
      for (const auto& [link, share] : jobs_[static_cast<size_t>(j)].loads[at.phase]) loads[link] += share;
    }
    double step = time_ps - passed;
    for (size_t k = 0; k < jobs.size(); ++k) {
      const Position& at = positions[static_cast<size_t>(jobs[k])];
      speeds[k] = 1;
      if (at.is_there && at.wait_ps > 0) step = std::min(step, at.wait_ps);
      if (!runs(at)) continue;
      double most = 1;
      for (const auto& [link, share] : jobs_[static_cast<size_t>(jobs[k])].loads[at.phase]) {
        most = std::max(most, loads[link]);
      }
      if (most > 1 + kLeastExcess) speeds[k] = 1 / most;
      step = std::min(step, at.left_ps / speeds[k]);
    }
    passed += step;
    for (size_t k = 0; k < jobs.size(); ++k) {
      Position& at = positions[static_cast<size_t>(jobs[k])];
      if (!at.is_there || at.is_through) continue;
      const Job& job = jobs_[static_cast<size_t>(jobs[k])];
      const bool begins = at.wait_ps > 0;
      if (begins) {
        at.wait_ps = at.wait_ps - step > kRestPs ? at.wait_ps - step : 0;
        if (at.wait_ps > 0) continue;
      } else {
        lost += job.weight * step * (1 - speeds[k]) / job.period_ps;
        at.left_ps -= step * speeds[k];
        if (at.left_ps > kRestPs) continue;
        if (edges != nullptr && !job.loads[at.phase].empty()) edges->ends_ps.push_back(passed);
        const bool is_last = at.phase + 1 == job.phases.size();
        if (is_last && edges != nullptr) edges->first_end_ps.emplace(jobs[k], passed);
        at.is_through = is_last && !repeats;
        if (at.is_through) continue;
        if (is_last) at.wait_ps = std::exchange(at.next_wait_ps, 0);
        enter_phase(job, at, is_last ? 0 : at.phase + 1);
      }
      const bool loads_links = at.wait_ps <= 0 && !job.loads[at.phase].empty();
      if (edges != nullptr && loads_links) edges->begins_ps.push_back(passed);
    }
  }
  return lost;
}

// A time, or as much of it as jobs of very short iterations let it be walked through.
double PhaseModel::walked_ps(const std::vector<int32_t>& jobs, double time_ps) const {
  double most = time_ps;
  for (const int32_t j : jobs) most = std::min(most, kMostIterations * jobs_[static_cast<size_t>(j)].period_ps);
  return most;
}

// start_ps: when the job begins the iteration that may be held.
std::vector<double> PhaseModel::holds_to_try(int32_t job, const std::vector<int32_t>& all, const Positions& now,
                                             double start_ps) const {
  const Job& own = jobs_[static_cast<size_t>(job)];
  std::vector<int32_t> others;
  for (const int32_t j : all) {
    if (j != job) others.push_back(j);
  }
  Positions positions = now;
  Edges edges;
  walk(positions, others, walked_ps(all, start_ps + 2 * own.period_ps), true, &edges);
  std::set<double> holds;
  double begin = start_ps;
  for (size_t p = 0; p < own.phases.size(); ++p) {
    const double end = begin + own.phases[p].length_ps;
    if (!own.loads[p].empty()) {
      for (const double other : edges.ends_ps) holds.insert(other - begin);
      for (const double other : edges.begins_ps) holds.insert(other - end);
    }
    begin = end;
  }
  std::vector<double> found;
  for (const double hold : holds) {
    if (hold > kRestPs && hold <= own.period_ps && (found.empty() || hold - found.back() > kRestPs)) {
      found.push_back(hold);
    }
  }
  if (found.size() <= kMostHolds) return found;
  found.clear();
  for (size_t k = 1; k <= kMostHolds; ++k) {
    found.push_back(own.period_ps * static_cast<double>(k) / static_cast<double>(kMostHolds));
  }
  return found;
}

double PhaseModel::best_hold(int32_t job, int32_t horizon) {
  renumber_links();
  const Job& own = jobs_[static_cast<size_t>(job)];
  const std::vector<int32_t> all = neighbours_of(job);
  if (own.period_ps <= 0 || all.size() < 2) return 0;
  Positions now;
  double longest = 0;
  for (const Job& one : jobs_) {
    now.push_back(one.at);
    if (!one.at.is_through) continue;
    now.back().is_through = false;
    enter_phase(one, now.back(), 0);
  }
  for (const int32_t j : all) longest = std::max(longest, jobs_[static_cast<size_t>(j)].period_ps);
  const double until_ps = walked_ps(all, horizon * longest);
  Position& self = now[static_cast<size_t>(job)];
  self = Position();
  self.is_there = true;
  enter_phase(own, self, 0);
  const auto cost = [&](int32_t held, double hold) {
    Positions positions = now;
    Position& at = positions[static_cast<size_t>(held)];
    (held == job ? at.wait_ps : at.next_wait_ps) = hold;
    return hold / jobs_[static_cast<size_t>(held)].period_ps + walk(positions, all, until_ps, true, nullptr);
  };
  double least = cost(job, 0) - kLeastGain, best = 0;
  if (least <= 0) return 0;
  for (const double hold : holds_to_try(job, all, now, 0)) {
    const double found = cost(job, hold);
    if (found >= least - kRest) continue;
    least = found;
    best = hold;
  }
  if (best <= 0) return 0;
  Positions positions = now;
  Edges edges;
  walk(positions, all, until_ps, true, &edges);
  for (const auto& [other, end_ps] : edges.first_end_ps) {
    if (other == job) continue;
    for (const double hold : holds_to_try(other, all, now, end_ps)) {
      if (cost(other, hold) < least - kRest) return 0;
    }
  }
  return best;
}

}  // namespace rostam::control
