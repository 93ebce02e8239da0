// TaskGraph: what a session runs. Templates hold tasks once; programs say which of them run in one iteration, for
// which micro-batch (program.h); devices bind a program's slots to their process groups and peers. Instances are made
// lazily by the session, so memory follows what is in flight.
//
// Slots: a communication task names a slot; each device binds every slot of its program to a process group (for
// collectives) or to one peer device (for send and recv). Each slot is one first-in first-out stream (MODEL B8).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/schedule.h"
#include "sim/sim_time.h"
#include "workload/program.h"

namespace rostam::workload {

enum class TaskKind : uint8_t { kCompute = 0, kCollective = 1, kSend = 2, kRecv = 3 };

struct Task {
  TaskKind kind = TaskKind::kCompute;
  int32_t slot = -1;                // communication: index into the device's slots
  int32_t category = 0;             // communication: index into TaskGraph::categories, for the breakdown
  int32_t schedule = -1;            // collective: index into TaskGraph::schedules
  int32_t channel = -1;             // send / recv: a recv takes the message of its channel and micro-batch
  int64_t bytes = 0;                // collective: S of MODEL A4; send: message size
  SimTime duration;                 // compute
  std::vector<SimTime> kernels;     // compute: what the duration is the sum of; each is launched
  bool is_awaited_by_host = false;  // compute: the host launches it and what follows when it could start
  std::vector<int32_t> deps;        // earlier tasks of the template; compute also follows the compute task before it
};

struct Template {
  std::vector<Task> tasks;
  // Derived by freeze(): tasks of each stream in order (0 = compute, slot + 1 = that slot), dependents, counts.
  std::vector<std::vector<int32_t>> stream_tasks;
  std::vector<std::vector<int32_t>> dependents;
  std::vector<int32_t> num_deps;
};

struct SlotBinding {
  int32_t group = -1;  // collectives: index into TaskGraph::groups
  int32_t rank = -1;   // this device's place in the group
  int32_t peer = -1;   // send / recv: device index
};

struct Device {
  int32_t accelerator = 0;
  int32_t program = 0;
  int32_t job = 0;
  double slowdown = 1;  // compute durations are multiplied by it
  SimTime start;
  std::vector<SlotBinding> slots;
};

struct TaskGraph {
  std::vector<std::string> categories;
  std::vector<std::shared_ptr<const collectives::Schedule>> schedules;
  std::vector<Template> templates;
  std::vector<Program> programs;
  std::vector<std::vector<int32_t>> groups;  // device indices in rank order
  std::vector<Device> devices;
  int32_t num_jobs = 1;
  bool is_frozen = false;          // by freeze() (freeze.h)
  std::vector<int32_t> num_slots;  // per program, derived by freeze()

  // Throws: ConfigError if frozen; whoever adds something calls it before.
  void check_open() const;

  // Bytes of one chunk of a collective task: ceil(S / num_chunks).
  int64_t chunk_bytes(const Task& task) const;
};

}  // namespace rostam::workload
