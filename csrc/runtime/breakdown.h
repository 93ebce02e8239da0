// Breakdown: where every device's time went (MODEL B10), by iteration of its job.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/instances.h"
#include "runtime/jobs.h"
#include "runtime/participations.h"

namespace rostam::runtime {

class Breakdown {
 public:
  Breakdown(const WeightedSystem& system, const Jobs& jobs, const Participations& participations);

  void account_compute(int32_t device, SimTime start, SimTime end);

  // The compute stream idled from `from` until `start`, which is now; `task` says what it waited for.
  void account_idle(int32_t device, SimTime from, const TaskState& task, SimTime start);

  // The device is through a collective.
  void end_collective(int32_t device, SimTime joined, SimTime end, int32_t category);

  // A device of a job that goes on with `iteration`: what it did in that one and later ones is given up, so that the
  // time until it does it again is bubble.
  void restart(int32_t device, int32_t iteration);

  // Of every device's last whole iteration. REQUIRES: every job has ended one.
  void fill(workload::SessionResult& result) const;

 private:
  struct Span {
    SimTime start, end;
    int32_t category = 0;
  };
  void account_unsent(int32_t device, SimTime from, SimTime to);
  void account(int32_t device, int32_t bucket, SimTime from, SimTime to);

  const WeightedSystem& system_;
  const Jobs& jobs_;
  const Participations& participations_;
  size_t num_buckets_;
  std::vector<std::vector<Span>> spans_;          // collectives that ended since the device last began to compute
  std::vector<std::vector<int64_t>> buckets_ps_;  // [iteration window][device * num_buckets + bucket]
};

}  // namespace rostam::runtime
