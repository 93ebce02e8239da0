#include "runtime/restarts.h"

#include <algorithm>
#include <set>
#include <utility>

namespace rostam::runtime {

Restarts::Restarts(const Parts& parts) : parts_(parts), jobs_(parts.system.graph->num_jobs) {
  for (size_t d = 0; d < parts.system.devices.size(); ++d) {
    jobs_[parts.system.devices[d].job].devices.push_back(static_cast<int32_t>(d));
  }
}

const Restarts::Job& Restarts::at(int32_t job) const {
  const auto num_jobs = static_cast<int32_t>(jobs_.size());
  if (job >= 0 && job < num_jobs) return jobs_[job];
  ROSTAM_THROW(ConfigError, "a controller names job " << job << "; jobs are 0 to " << num_jobs - 1);
}

std::vector<int32_t> Restarts::accelerators_of(int32_t job) const {
  std::vector<int32_t> accelerators;
  for (const int32_t d : at(job).devices) accelerators.push_back(parts_.system.devices[d].accelerator);
  return accelerators;
}

std::vector<int32_t> Restarts::cut_failed(const Faults& faults) {
  std::vector<int32_t> found;
  for (int32_t job = 0; job < static_cast<int32_t>(jobs_.size()); ++job) {
    Job& state = jobs_[job];
    if (state.is_down || parts_.jobs.is_finished(job)) continue;
    for (const int32_t d : state.devices) {
      const int32_t accelerator = parts_.system.devices[d].accelerator;
      if (!faults.is_failed(accelerator)) continue;
      state.failed_accelerator = accelerator;
      cut(job);
      found.push_back(job);
      break;
    }
  }
  return found;
}

void Restarts::cut(int32_t job) {
  Job& state = jobs_[job];
  state.is_down = true;
  state.cut = parts_.queue.now();
  parts_.jobs.cut(job);
  parts_.messenger.cut(job);
  for (const int32_t d : state.devices) {
    parts_.mailboxes.cut(d);
    parts_.participations.restart(d);
    parts_.scheduler.cut(d);
    parts_.instances.restart(d, parts_.jobs.num_done(job));
  }
}

void Restarts::restart(int32_t job, SimTime when, int32_t from_iteration, const std::vector<int32_t>& accelerators,
                       const Faults& faults) {
  const int32_t num_done = (at(job), parts_.jobs.num_done(job));
  if (parts_.jobs.is_finished(job) || from_iteration < 0 || from_iteration > num_done || when < parts_.queue.now()) {
    ROSTAM_THROW(ConfigError, "job " << job << " is restarted at " << parts_.queue.now().seconds() << " s for "
                                     << when.seconds() << " s with iteration " << from_iteration << "; it has ended "
                                     << num_done << (parts_.jobs.is_finished(job) ? " and is through" : " so far"));
  }
  check_accelerators(job, accelerators, faults);
  Job& state = jobs_[job];
  if (!state.is_down) cut(job);
  workload::Restart restart = parts_.ledger.restart(job, from_iteration);
  restart.cut = state.cut;
  restart.start = when;
  restart.from_iteration = from_iteration;
  parts_.jobs.restart(job, from_iteration, when);
  for (size_t k = 0; k < state.devices.size(); ++k) {
    const int32_t d = state.devices[k];
    if (!accelerators.empty()) place(d, accelerators[k]);
    parts_.messenger.routes().forget_device(d);  // its peers may have moved
    restart.accelerators.push_back(parts_.system.devices[d].accelerator);
    parts_.instances.restart(d, from_iteration);
    parts_.breakdown.restart(d, from_iteration);
    parts_.scheduler.restart(d, when);
  }
  state.restarts.push_back(std::move(restart));
  state.is_down = false;
}

void Restarts::check_accelerators(int32_t job, const std::vector<int32_t>& accelerators, const Faults& faults) const {
  const std::vector<int32_t> own = accelerators_of(job);
  const std::vector<int32_t>& wanted = accelerators.empty() ? own : accelerators;
  if (wanted.size() != own.size()) {
    ROSTAM_THROW(ConfigError, "job " << job << " is restarted on " << wanted.size() << " accelerators; it has "
                                     << own.size() << " devices");
  }
  std::set<int32_t> taken;
  for (int32_t other = 0; other < static_cast<int32_t>(jobs_.size()); ++other) {
    if (other == job || parts_.jobs.is_finished(other)) continue;
    for (const int32_t accelerator : accelerators_of(other)) taken.insert(accelerator);
  }
  const int32_t num_accelerators = faults.num_accelerators();
  for (const int32_t accelerator : wanted) {
    const bool exists = accelerator >= 0 && accelerator < num_accelerators;
    const char* reason = !exists                             ? "does not exist"
                         : faults.is_failed(accelerator)     ? "has failed"
                         : accelerators.empty()              ? nullptr
                         : !taken.insert(accelerator).second ? "is named twice or taken by another job"
                                                             : nullptr;
    if (reason == nullptr) continue;
    ROSTAM_THROW(ConfigError, "job " << job << " is restarted on accelerator " << accelerator << ", which " << reason
                                     << "; the fabric has 0 to " << num_accelerators - 1);
  }
}

void Restarts::place(int32_t device, int32_t accelerator) {
  workload::Device& placed = parts_.system.devices[device];
  if (placed.accelerator == accelerator) return;
  parts_.messenger.carrier().wire().leave(device, placed.accelerator);
  placed.accelerator = accelerator;
}

void Restarts::throw_if_down() const {
  for (size_t job = 0; job < jobs_.size(); ++job) {
    if (!jobs_[job].is_down) continue;
    ROSTAM_THROW(ConfigError, "accelerator " << jobs_[job].failed_accelerator
                                             << " failed, or lost all of its links, at " << jobs_[job].cut.seconds()
                                             << " s, and nothing restarted job " << job
                                             << ", which used it: it needs a spare, or a repair");
  }
}

void Restarts::fill(workload::SessionResult& result) const {
  for (size_t job = 0; job < jobs_.size(); ++job) result.jobs[job].restarts = jobs_[job].restarts;
  if (parts_.system.is_folded) return;
  for (size_t d = 0; d < parts_.system.devices.size(); ++d) {
    const int32_t accelerator = parts_.system.devices[d].accelerator;
    if (accelerator != parts_.system.graph->devices[d].accelerator) {
      parts_.messenger.carrier().wire().leave(static_cast<int32_t>(d), accelerator);
    }
  }
}

}  // namespace rostam::runtime
