// Restarts: cuts jobs, when an accelerator fails or a controller says so, and starts them again, on other accelerators
// perhaps. A job that is cut gives up all that it has under way; events of before carry an older epoch and are dropped.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/breakdown.h"
#include "runtime/faults.h"
#include "runtime/mailboxes.h"
#include "runtime/scheduler.h"

namespace rostam::runtime {

class Restarts {
 public:
  struct Parts {
    WeightedSystem& system;  // where devices are
    EventQueue& queue;
    Instances& instances;
    Participations& participations;
    Jobs& jobs;
    Ledger& ledger;
    Breakdown& breakdown;
    Scheduler& scheduler;
    Messenger& messenger;
    Mailboxes& mailboxes;
  };
  explicit Restarts(const Parts& parts);

  // Cuts the jobs that are not through and have a device on a failed accelerator; returns them.
  std::vector<int32_t> cut_failed(const Faults& faults);

  // Throws: as ControlPlane::restart.
  void restart(int32_t job, SimTime when, int32_t from_iteration, const std::vector<int32_t>& accelerators,
               const Faults& faults);

  // Throws: ConfigError for a job that does not exist.
  std::vector<int32_t> accelerators_of(int32_t job) const;

  // Throws: ConfigError if a job was cut and not restarted since.
  void throw_if_down() const;

  // To be called before the bytes on the wire are filled in.
  void fill(workload::SessionResult& result) const;

 private:
  struct Job {
    std::vector<int32_t> devices;
    bool is_down = false;
    SimTime cut;                      // if it is down
    int32_t failed_accelerator = -1;  // that brought it down
    std::vector<workload::Restart> restarts;
  };
  const Job& at(int32_t job) const;
  void cut(int32_t job);
  void check_accelerators(int32_t job, const std::vector<int32_t>& accelerators, const Faults& faults) const;
  void place(int32_t device, int32_t accelerator);

  Parts parts_;
  std::vector<Job> jobs_;
};

}  // namespace rostam::runtime
