// Scheduler: every device's streams, first-in first-out. A kernel or collective starts at max(ready + launch latency,
// stream free), ready being the end of what it waits for on other streams (MODEL B7, B8), and not before its host has
// launched it, nor before its turn in its communicator's order. A program's next instance is made when the compute
// stream (number 0) enters the one before, so other streams may look one instance ahead.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/breakdown.h"
#include "runtime/hosts.h"
#include "runtime/instances.h"
#include "runtime/jobs.h"
#include "runtime/kernels.h"
#include "runtime/options.h"
#include "runtime/streams.h"

namespace rostam::runtime {

// Hears when a job's iteration ends and, where it asks for it, when one begins, and instances on devices begin and end.
class ProgressClient {
 public:
  virtual ~ProgressClient() = default;
  virtual void on_iteration_start(int32_t job, int32_t iteration) = 0;
  virtual void on_iteration_end(int32_t job) = 0;
  virtual void on_phase_start(int32_t device, const Instance& instance) = 0;
  virtual void on_phase_end(int32_t device, const Instance& instance) = 0;
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
    ProgressClient& client;
  };
  explicit Scheduler(const Parts& parts);

  // Schedules the start of every device.
  void start();
  // Of a device of a job that is cut: stops what runs on it; begins anew at `when`.
  void cut(int32_t device);
  void restart(int32_t device, SimTime when);

  void finish_task(const TaskRef& ref, SimTime start, SimTime end, const CriticalPath::Ref& parent) override;
  void change_collectives(int32_t device, int32_t change, const Task& task) override {
    kernels_.change_collectives(device, change, task.taken_ppm);
  }
  void on_kernel_end(int32_t device, int32_t stream) override;
  void fetch_kernel_end(int32_t device, int32_t stream) const override { fetch(device, stream); }

  void fetch(int32_t device, int32_t stream) const override;

  // The task that a stream looked at last, for errors of arithmetic.
  std::string describe_current() const {
    return current_device_ < 0 ? "the set-up" : streams_.describe(current_device_, current_stream_);
  }

  // From now on the client hears of iterations that begin, before anything of them does.
  void tell_starts() { tells_starts_ = true; }
  // From now on the client hears of phases.
  void tell_phases() { tells_phases_ = true; }

  // Accounts for kernels that run now, then fills when devices ended and the timeline. For the end of a run.
  void fill(workload::SessionResult& result);

 private:
  void make_instance(int32_t device);
  // Of no length, on a stream of its own choice: the device computes no more for it, and does not less.
  static bool is_point(const Task& task) { return task.stream > 0 && task.duration == SimTime::zero(); }
  // When a task whose dependencies have ended may start on a free stream, the host apart.
  SimTime released_at(const Streams::Next& next) const;
  bool release_host(const TaskRef& task, const Streams::Next& next, const Stream& stream);
  void try_order(int32_t device, int32_t order);
  CriticalPath::Ref add_hold(const TaskRef& task, SimTime launched, const CriticalPath::Ref& cause);
  void try_all_streams(int32_t device);
  SimTime drawn_duration(int32_t device, const Instance& instance, int32_t task) const;
  void start_device(uint64_t device_and_epoch);
  void try_stream(int32_t device, int32_t stream);
  void on_begin(uint64_t device_and_stream_and_epoch);
  void fetch_begin(uint64_t device_and_stream_and_epoch) const;
  void begin_task(int32_t device, int32_t stream);
  void begin_compute(const TaskRef& ref, const Streams::Next& next, SimTime launched, SimTime held_from);
  void on_point(uint64_t device_and_stream_and_epoch);
  void end_compute(int32_t device, int32_t stream);
  void note_communication(int32_t device, const Task& task, TaskState& state, SimTime start, SimTime end);
  void release_dependents(const TaskRef& ref, Instance& instance, const Template& body, const CriticalPath::Ref& node);
  void retire_instances(int32_t device);
  int32_t epoch_of(int32_t device) const { return parts_.jobs.epoch_of(device); }

  Parts parts_;
  Kernels kernels_;
  Hosts hosts_;
  MemberEvent<Scheduler> device_starts_, begins_, points_;
  Streams streams_;
  std::vector<uint8_t> is_recorded_;
  std::vector<workload::TimelineEntry> timeline_;
  int32_t current_device_ = -1;
  int32_t current_stream_ = 0;
  bool tells_starts_ = false;
  bool tells_phases_ = false;
};

}  // namespace rostam::runtime
