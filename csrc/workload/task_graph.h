// TaskGraph: what a session runs. Templates hold tasks once; programs say which of them run in one iteration, for
// which micro-batch (program.h); devices bind a program's slots to their process groups and peers. Instances are made
// lazily by the session, so memory follows the tasks in flight.
//
// Slots: a communication task names a slot; each device binds every slot of its program to a process group (for
// collectives) or to one peer device (for send and recv). Each slot is one first-in first-out stream (MODEL B8), unless
// its tasks name other streams, which kernels and several slots may share; a slot's collectives then name an order too.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/schedule.h"
#include "sim/sim_time.h"
#include "workload/program.h"

namespace rostam::workload {

enum class TaskKind : uint8_t { kCompute = 0, kCollective = 1, kSend = 2, kRecv = 3 };

// How messages of a communication task go, where links have start-up costs: what one of NCCL's protocols adds to the
// fabric's own latencies. Links carry `wire_overhead` bytes for each byte of a message, whose payload stays its size.
struct Protocol {
  double wire_overhead = 1;
  SimTime server_hop, network_hop;  // of a message inside a server, between servers
  // Of a transfer through a region of switches at most, over all planes [bytes/s].
  double region_rate = std::numeric_limits<double>::infinity();
  // Of a message inside a server at most, over all planes [bytes/s].
  double server_rate = std::numeric_limits<double>::infinity();

  int64_t wire_bytes(int64_t bytes) const;
};

// Of a template that interleaves others: the template and task that a task is there, and by how many micro-batches its
// own is ahead of the instance's.
struct Origin {
  int32_t template_id = -1;  // none: the task is of its own template
  int32_t task = 0;
  int32_t ahead = 0;

  bool operator==(const Origin& other) const {
    return template_id == other.template_id && task == other.task && ahead == other.ahead;
  }
};

struct Task {
  TaskKind kind = TaskKind::kCompute;
  int32_t slot = -1;                // communication: index into the device's slots
  int32_t stream = -1;              // its first-in first-out queue, 0 that of kernels; -1: that of its slot, slot + 1
  int32_t order = -1;               // a second such queue, of a communicator on several streams; holds no kernels
  int32_t category = 0;             // communication: index into TaskGraph::categories, for the breakdown
  int32_t schedule = -1;            // collective: index into TaskGraph::schedules
  int32_t channel = -1;             // send / recv: a recv takes the message of its channel and micro-batch
  int64_t bytes = 0;                // collective: S of MODEL A4; send: message size
  int32_t protocol = -1;            // communication: index into TaskGraph::protocols; -1 adds nothing
  SimTime duration;                 // compute; of a collective or send, its start-up before the first message
  double variation = 0;             // compute: its standard deviation as a share of one kernel's, see SessionOptions
  std::vector<SimTime> kernels;     // compute: what the duration is the sum of; each is launched
  std::vector<SimTime> issues;      // compute: what each kernel costs its host; empty: SessionOptions::host_launch
  int32_t taken_ppm = 0;            // collective: millionths of a device's compute that it takes while it runs
  bool is_awaited_by_host = false;  // not of messages: the host launches it and what follows when it could start
  bool is_mark = false;             // compute of no kernels: a point of its stream, which nothing launches
  Origin origin;
  std::vector<int32_t> deps;  // earlier tasks of the template; compute also follows the compute task before it

  bool operator==(const Task& other) const;
};

struct Template {
  std::vector<Task> tasks;
  // Derived by freeze(): tasks of each stream and order (0 = compute, slot + 1 = that slot, others), dependents,
  // counts, receives by channel, and whether any task computes.
  std::vector<std::vector<int32_t>> stream_tasks;
  std::vector<std::vector<int32_t>> dependents;
  std::vector<int32_t> num_deps;
  std::vector<std::pair<int32_t, int32_t>> receives;  // channel, task; ascending
  bool has_compute = false;
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
  std::vector<Protocol> protocols;
  int32_t server_size = 0;  // consecutive accelerators of a server; 0: servers are not told apart
  std::vector<Template> templates;
  // By template, derived by freeze(): the first one with the same tasks. Sessions read that one's: of a deep pipeline,
  // whose stages have templates each that hardly differ, these few stay in the processor's caches.
  std::vector<int32_t> body_of;
  std::vector<Program> programs;
  std::vector<std::vector<int32_t>> groups;  // device indices in rank order
  std::vector<Device> devices;
  int32_t num_jobs = 1;
  bool is_frozen = false;            // by freeze() (freeze.h)
  std::vector<int32_t> num_slots;    // per program, derived by freeze()
  std::vector<int32_t> num_streams;  // per program, orders among them, derived by freeze()
  // Regions of all schedules, each once, and by schedule and its own number which one it is; derived by freeze().
  std::vector<collectives::Region> regions;
  std::vector<std::vector<int32_t>> region_of;

  // Throws: ConfigError if frozen; whoever adds something calls it before.
  void check_open() const;

  // Whether two accelerators are on one server.
  bool is_inside_server(int32_t accelerator, int32_t other) const {
    return server_size > 0 && accelerator / server_size == other / server_size;
  }

  // The devices of a region of which a device bound to a group's rank is one, in its order.
  std::vector<int32_t> region_members(const SlotBinding& binding, int32_t region) const;

  // Bytes of one chunk of a collective task: ceil(S / num_chunks).
  int64_t chunk_bytes(const Task& task) const;
};

}  // namespace rostam::workload
