// Instances: the live instances of every device's program, made when its compute stream comes to them and freed when
// their last task ends, so that memory follows the tasks in flight.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "folding/weighted_system.h"
#include "runtime/tasks.h"
#include "sim/few_list.h"

namespace rostam::runtime {

using folding::WeightedSystem;
using workload::Task;
using workload::Template;

// One task of a live instance. `cause` ended last among what the task waited for on other streams. `wait` is that one's
// number in the breakdown if it is communication, else -1; of a task that has ended, its own.
struct TaskState {
  int32_t num_waiting = 0;
  bool is_done = false;
  SimTime ready;
  int64_t wait = -1;
  CriticalPath::Ref cause;
};

// A stretch of what a host issues without a stop: its clock in front of the first kernel, since when it has not
// stopped, and what ended then.
struct HostSpan {
  SimTime clock = SimTime::never();
  SimTime since;
  CriticalPath::Ref cause;
  bool is_known() const { return clock != SimTime::never(); }
};

struct Instance {
  int32_t template_id = 0;
  int32_t body = 0;  // the template that is read (TaskGraph::body_of)
  int32_t microbatch = 0;
  int32_t iteration = 0;
  int32_t num_left = 0;
  bool has_begun = false;  // kept where phases are told
  std::vector<TaskState> tasks;
  std::vector<HostSpan> host;  // where hosts limit: the spans that its stops part it into
};

class Instances {
 public:
  Instances(const WeightedSystem& system, int32_t max_iterations);

  // The device's next instance, or null if its program has run max_iterations times.
  Instance* make(int32_t device, SimTime now);

  // Takes the device's oldest instance off if all its tasks are done, else null. It is there until one is made.
  const Instance* retire(int32_t device);

  // Drops the device's live instances; the next one is the first of an iteration.
  void restart(int32_t device, int32_t iteration);

  Instance& at(int32_t device, int64_t sequence) {
    DeviceState& state = devices_[device];
    return *state.live[static_cast<uint32_t>(sequence - state.first_live)];
  }
  const Instance& at(int32_t device, int64_t sequence) const {
    const DeviceState& state = devices_[device];
    return *state.live[static_cast<uint32_t>(sequence - state.first_live)];
  }
  const Template& body(const Instance& instance) const { return system_.graph->templates[instance.body]; }
  const Task& task(const TaskRef& ref) const { return body(at(ref.device, ref.sequence)).tasks[ref.task]; }
  // The task's own, which may be ahead of its instance's.
  int32_t microbatch(const TaskRef& ref) const {
    return at(ref.device, ref.sequence).microbatch + task(ref).origin.ahead;
  }
  // What the task is for those who read of it: of an interleaved template, what it is in its own.
  void name(const TaskRef& ref, PathNode& node) const;

  // Asks for what an event of the device is going to look at.
  void fetch(int32_t device) const { __builtin_prefetch(&devices_[device]); }

  // Sequence numbers of live instances are first(device) to next(device) - 1.
  int64_t first(int32_t device) const { return devices_[device].first_live; }
  int64_t next(int32_t device) const { return devices_[device].next; }

  // In words, for errors.
  std::string describe(const TaskRef& ref) const;
  // Up to `count` tasks that are not done and what they wait for, one line each.
  std::string describe_blocked(int32_t count) const;

 private:
  struct alignas(64) DeviceState {
    int64_t next = 0;
    int64_t first_live = 0;
    FewList<Instance*, 2> live;
  };
  const WeightedSystem& system_;
  int32_t max_iterations_;
  std::vector<DeviceState> devices_;
  // Those of all devices: what ended last, and is still in the processor's caches, is used again first.
  std::deque<Instance> all_;
  std::vector<Instance*> free_;
};

}  // namespace rostam::runtime
