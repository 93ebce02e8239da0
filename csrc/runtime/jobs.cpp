#include "runtime/jobs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/member_event.h"

namespace rostam::runtime {

Jobs::Jobs(const folding::WeightedSystem& system, const SessionOptions& options, std::function<bool()> is_settled)
    : system_(system),
      options_(options),
      is_settled_(std::move(is_settled)),
      jobs_(system.graph->num_jobs),
      instances_left_(system.devices.size()) {
  for (const workload::Device& device : system.devices) {
    Job& job = jobs_[device.job];
    if (job.ends.empty() || device.start < job.ends.front()) job.ends.assign(1, device.start);
    num_running_ += job.num_devices++ == 0;
  }
}

bool Jobs::begin_iteration(int32_t device, int32_t iteration) {
  Job& job = jobs_[system_.devices[device].job];
  if (iteration < job.num_begun) return false;
  job.num_begun = iteration + 1;
  return true;
}

bool Jobs::end_instance(int32_t device, int32_t iteration, SimTime now) {
  std::vector<int64_t>& left = instances_left_[device];
  const auto index = static_cast<size_t>(iteration);
  const workload::Device& own = system_.devices[device];
  if (left.size() <= index) left.resize(index + 1, system_.graph->programs[own.program].num_steps());
  if (--left[index] > 0) return false;
  Job& job = jobs_[own.job];
  if (job.devices_left.size() <= index) job.devices_left.resize(index + 1, job.num_devices);
  if (--job.devices_left[index] > 0) return false;
  end_iteration(job, iteration, now);
  return true;
}

void Jobs::end_iteration(Job& job, int32_t iteration, SimTime now) {
  job.ends.push_back(now);
  job.ended_by = job.last;
  ROSTAM_CHECK(static_cast<int32_t>(job.ends.size()) == iteration + 2, "iterations ended out of order");
  const int32_t num_done = iteration + 1;
  // Jobs that share links run a fixed number of iterations: none of them is steady while another comes or goes.
  const bool may_stop = num_done >= options_.min_iterations && num_done >= 2 && jobs_.size() == 1;
  const bool is_finished = num_done >= options_.max_iterations || (may_stop && is_steady(job));
  if (is_finished && !job.is_finished) --num_running_;
  job.is_finished = is_finished;
}

void Jobs::cut(int32_t job) {
  if (++jobs_[job].epoch <= kMaxEpoch) return;
  ROSTAM_THROW(ConfigError,
               "job " << job << " was cut " << kMaxEpoch + 1 << " times; at most " << kMaxEpoch << " are allowed");
}

void Jobs::restart(int32_t job, int32_t iteration, SimTime when) {
  Job& state = jobs_[job];
  const auto kept = static_cast<size_t>(iteration);
  state.num_begun = iteration;
  state.held_until = SimTime::zero();
  state.ends.resize(kept + 1);
  if (iteration == 0) state.ends.front() = std::min(state.ends.front(), when);  // cut before it had begun
  state.devices_left.resize(std::min(state.devices_left.size(), kept));
  for (size_t d = 0; d < instances_left_.size(); ++d) {
    if (system_.devices[d].job == job) instances_left_[d].resize(std::min(instances_left_[d].size(), kept));
  }
}

bool Jobs::is_steady(const Job& job) const {
  const size_t n = job.ends.size();
  if (n < 3 || !is_settled_()) return false;
  const double last = (job.ends[n - 1] - job.ends[n - 2]).seconds();
  const double before = (job.ends[n - 2] - job.ends[n - 3]).seconds();
  return std::abs(last - before) <= options_.steady_tolerance * last;
}

int32_t Jobs::num_averaged(int32_t job) const {
  const int32_t after_first = num_done(job) - 1;
  if (!options_.enable_averages || is_steady(jobs_[job])) return 1;
  for (int32_t length = 2; length <= std::min(kMaxCycle, after_first / 2); ++length) {
    if (is_cycle(jobs_[job], length)) return length;
  }
  return std::max(1, after_first);
}

// Whether its last iterations, so many, take as long as those before them, one by one.
bool Jobs::is_cycle(const Job& job, int32_t num_iterations) const {
  const auto seconds = [&job](size_t k) { return (job.ends[k] - job.ends[k - 1]).seconds(); };
  const size_t last = job.ends.size() - 1, length = static_cast<size_t>(num_iterations);
  for (size_t k = last; k > last - length; --k) {
    if (std::abs(seconds(k) - seconds(k - length)) > options_.steady_tolerance * seconds(k)) return false;
  }
  return true;
}

void Jobs::fill(const CriticalPath& path, workload::SessionResult& result) const {
  for (int32_t number = 0; number < size(); ++number) {
    const Job& job = jobs_[number];
    ROSTAM_CHECK(jobs_.size() > 1 || job.num_devices == 0 || job.ends.size() >= 2, "a job ended without an iteration");
    workload::JobResult one;
    one.iteration_ends = job.ends;
    one.is_steady = is_steady(job);
    one.num_averaged = num_averaged(number);
    one.critical_path = path.chain(job.ended_by);
    result.jobs.push_back(std::move(one));
  }
}

}  // namespace rostam::runtime
