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

  // Asks for what an event of the device is going to look at.
  void fetch(int32_t device) const {
    __builtin_prefetch(&ended_[device], 1);
    if (!buckets_ps_.empty() && !buckets_ps_.back().empty()) {
      __builtin_prefetch(&buckets_ps_.back()[static_cast<size_t>(device) * num_buckets_], 1);
    }
  }

  // The device ran no kernel from `from` until `start`, which is now; `task` says what its next one waited for, up to
  // `launched`, when its launch ended. From then on it waited for the host.
  void account_idle(int32_t device, SimTime from, const TaskState& task, SimTime launched, SimTime start);

  // A kernel begins: no idle time from now on waits for what has ended.
  void clear_ended(int32_t device) { ended_[device].clear(); }

  // A communication task that ended. A message's time is its transit: both begins are when it was sent.
  struct Communication {
    SimTime since;         // its launch began: what it waited for on this device had ended
    SimTime start;         // the rank joined
    SimTime issued;        // its host came to it, if that was what it waited for last
    SimTime end;           // now, or before it for a message that came before its receive was made
    int64_t awaited = -1;  // the communication that it waited for itself, or -1
    int32_t category = 0;
    bool is_collective = false;
  };
  // Returns its number, by which tasks of the same device say that they waited for it; -1 where none can.
  int64_t end_communication(int32_t device, const Communication& done);
  // Which of two that ended at once was waited for: the one that began last; of such ones, the first category's.
  int64_t awaited_of(int32_t device, int64_t one, int64_t other) const;

  // A device of a job that goes on with `iteration`: what it did in that one and later ones is given up, so that the
  // time until it does it again is bubble.
  void restart(int32_t device, int32_t iteration);

  // Of every device, the sum over its job's averaged iterations. REQUIRES: every job has ended one.
  void fill(workload::SessionResult& result) const;

 private:
  // Those that ended since the device last began to compute, numbered from `first` on: an idle stream waits for no
  // other.
  struct Ended {
    bool is_kept = false;  // the device computes
    int64_t first = 0;
    std::vector<Communication> all;
    void clear() {
      first += static_cast<int64_t>(all.size());
      all.clear();
    }
  };
  struct Span {
    SimTime start, end;
    int32_t category = 0;
  };
  void account_waits(int32_t device, SimTime from, SimTime to, int64_t awaited);
  void account_unsent(int32_t device, SimTime from, SimTime to);
  void account(int32_t device, int32_t bucket, SimTime from, SimTime to);

  const WeightedSystem& system_;
  const Jobs& jobs_;
  const Participations& participations_;
  size_t num_buckets_;
  std::vector<Ended> ended_;                      // per device
  std::vector<Span> spans_;                       // of account_unsent()
  std::vector<std::vector<int64_t>> buckets_ps_;  // [iteration window][device * num_buckets + bucket]
};

}  // namespace rostam::runtime
