// Scheduler: every device's streams, first-in first-out. A kernel or collective starts at max(ready + launch latency,
// stream free), ready being the end of what it waits for on other streams (MODEL B7, B8). A program's next instance is
// made when the compute stream enters the one before, so communication streams may look one instance ahead.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/breakdown.h"
#include "runtime/instances.h"
#include "runtime/jobs.h"
#include "runtime/kernels.h"
#include "runtime/options.h"

namespace rostam::runtime {

// Hears when a job's iteration ends.
class IterationClient {
 public:
  virtual ~IterationClient() = default;
  virtual void on_iteration_end(int32_t job) = 0;
};

class Scheduler : public TaskSink, public KernelClient {
 public:
  struct Parts {
    const WeightedSystem& system;
    const SessionOptions& options;
    EventQueue& queue;
    CriticalPath& path;
    Instances& instances;
    Jobs& jobs;
    Breakdown& breakdown;
    TaskStarter& starter;
    IterationClient& client;
  };
  explicit Scheduler(const Parts& parts);

  // Schedules the start of every device.
  void start();

  void finish_task(const TaskRef& ref, SimTime start, SimTime end, const CriticalPath::Ref& parent) override;
  void change_collectives(int32_t device, int32_t change) override { kernels_.change_collectives(device, change); }
  void on_kernel_end(int32_t device) override;

  // The task that a stream looked at last, for errors of arithmetic.
  std::string describe_current() const;

  // Accounts for kernels that run now, then fills when devices ended and the timeline. For the end of a run.
  void fill(workload::SessionResult& result);

 private:
  struct Stream {
    int64_t instance = 0;    // sequence number of the instance that holds its next task
    int32_t position = 0;    // index in that template's list for this stream
    bool is_busy = false;    // its next task waits for its launch or runs
    bool has_begun = false;  // it runs
    SimTime free_since;
    SimTime task_start;
    CriticalPath::Ref last;
  };
  struct Next {  // a task of a live instance
    Instance* instance = nullptr;
    const Template* body = nullptr;
    int32_t task = 0;
  };
  void make_instance(int32_t device);
  void start_device(uint64_t device) { make_instance(static_cast<int32_t>(device)); }
  void try_stream(int32_t device, int32_t stream);
  Next find_next(int32_t device, int32_t stream);
  void begin_task(uint64_t device_and_stream);
  void release_dependents(const TaskRef& ref, Instance& instance, const Template& body, const CriticalPath::Ref& node);
  void retire_instances(int32_t device);
  Next next_task(int32_t device, int32_t stream) const;
  Stream& stream_of(int32_t device, int32_t stream) { return streams_[device][stream]; }

  Parts parts_;
  Kernels kernels_;
  MemberEvent<Scheduler> device_starts_, begins_;
  std::vector<std::vector<Stream>> streams_;  // of every device
  std::vector<uint8_t> is_recorded_;
  std::vector<workload::TimelineEntry> timeline_;
  int32_t current_device_ = -1;
  int32_t current_stream_ = 0;
};

}  // namespace rostam::runtime
