// Jobs: when every job's iterations end, and when it has run enough of them (MODEL B9).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "folding/weighted_system.h"
#include "runtime/critical_path.h"
#include "runtime/options.h"
#include "workload/session_result.h"

namespace rostam::runtime {

// Longest cycle of iterations that is looked for.
constexpr int32_t kMaxCycle = 16;

class Jobs {
 public:
  // is_settled: asked when an iteration ends, before controllers know of it; what is not is not steady either.
  Jobs(const folding::WeightedSystem& system, const SessionOptions& options, std::function<bool()> is_settled);

  bool is_running() const { return num_running_ > 0; }

  // T_0 = start, T_1, ... of a job, by number or by one of its devices.
  const std::vector<SimTime>& ends(int32_t job) const { return jobs_[job].ends; }
  const std::vector<SimTime>& ends_of(int32_t device) const { return jobs_[system_.devices[device].job].ends; }
  int32_t size() const { return static_cast<int32_t>(jobs_.size()); }

  // How often the job has been cut: what was under way before is of an older epoch.
  int32_t epoch_of(int32_t device) const { return jobs_[system_.devices[device].job].epoch; }
  // How many of its last iterations its results are the mean of: one if it is steady; else those of the shortest cycle
  // that it went through twice, to the tolerance, the first iteration left out; else all but the first.
  int32_t num_averaged(int32_t job) const;

  // What ended its last iteration.
  const CriticalPath::Ref& ended_by(int32_t job) const { return jobs_[job].ended_by; }
  bool is_finished(int32_t job) const { return jobs_[job].is_finished; }
  int32_t num_done(int32_t job) const { return static_cast<int32_t>(jobs_[job].ends.size()) - 1; }

  // What the job has under way is given up. Throws: ConfigError if it was cut too often.
  void cut(int32_t job);
  // Goes on at `when` with an iteration that has ended, or the first that has not.
  void restart(int32_t job, int32_t iteration, SimTime when);

  // A device is about to begin an iteration. Returns whether its job begins it with that.
  bool begin_iteration(int32_t device, int32_t iteration);
  // What has not been launched of an iteration, and of later ones, begins at `until` or later.
  void hold(int32_t job, int32_t iteration, SimTime until) {
    jobs_[job].held_iteration = iteration;
    jobs_[job].held_until = until;
    is_any_held_ = true;
  }
  // When tasks of a device may begin.
  SimTime held_until(int32_t device, int32_t iteration) const {
    if (!is_any_held_) return SimTime::zero();
    const Job& job = jobs_[system_.devices[device].job];
    return iteration >= job.held_iteration ? job.held_until : SimTime::zero();
  }

  // A task ended an instance of the device; it is what ends the job's iteration if that ends now.
  void note_last(int32_t device, const CriticalPath::Ref& task) { jobs_[system_.devices[device].job].last = task; }

  // An instance of the device has ended. Returns whether its job's iteration has ended with it.
  bool end_instance(int32_t device, int32_t iteration, SimTime now);

  void fill(const CriticalPath& path, workload::SessionResult& result) const;

 private:
  struct Job {
    int32_t num_devices = 0;
    std::vector<int32_t> devices_left;  // per iteration
    std::vector<SimTime> ends;
    bool is_finished = false;
    int32_t num_begun = 0;  // iterations
    int32_t held_iteration = 0;
    SimTime held_until;
    int32_t epoch = 0;
    CriticalPath::Ref last;      // task that ended an instance last
    CriticalPath::Ref ended_by;  // task that ended the last iteration
  };
  // Whether the last two iterations of a job differ by less than the tolerance, and nothing is being tried out.
  bool is_steady(const Job& job) const;
  bool is_cycle(const Job& job, int32_t num_iterations) const;
  void end_iteration(Job& job, int32_t iteration, SimTime now);

  const folding::WeightedSystem& system_;
  const SessionOptions& options_;
  std::function<bool()> is_settled_;
  std::vector<Job> jobs_;
  int32_t num_running_ = 0;
  bool is_any_held_ = false;
  std::vector<std::vector<int64_t>> instances_left_;  // [device][iteration]
};

}  // namespace rostam::runtime
