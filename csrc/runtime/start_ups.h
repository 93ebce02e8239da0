// StartUps: communication tasks whose first message waits for their start-up, a protocol's base and what a rank does
// for itself. Tasks without one start at once. Example: start_ups.start(task, cause) calls back start_up_over(task,
// cause) a task.duration later.
#pragma once

#include <vector>

#include "runtime/instances.h"
#include "runtime/jobs.h"
#include "runtime/member_event.h"

namespace rostam::runtime {

class StartUpClient {
 public:
  virtual ~StartUpClient() = default;
  virtual void start_up_over(const TaskRef& task, const CriticalPath::Ref& cause) = 0;
};

class StartUps {
 public:
  StartUps(const folding::WeightedSystem& system, EventQueue& queue, const Instances& instances, const Jobs& jobs,
           StartUpClient& client);

  void start(const TaskRef& task, const CriticalPath::Ref& cause);

 private:
  // A slot is one stream: it starts one task at a time.
  struct Waiting {
    TaskRef task;
    CriticalPath::Ref cause;
  };
  void on_over(uint64_t device_and_slot_and_epoch);

  EventQueue& queue_;
  const Instances& instances_;
  const Jobs& jobs_;
  StartUpClient& client_;
  MemberEvent<StartUps> overs_;
  std::vector<std::vector<Waiting>> waiting_;  // per simulated device and slot
};

}  // namespace rostam::runtime
