#include "runtime/scheduler.h"

#include <algorithm>
#include <utility>

namespace rostam::runtime {

using workload::TaskKind;

Scheduler::Scheduler(const Parts& parts)
    : parts_(parts),
      kernels_(parts.system, parts.options.comm_compute_fraction, parts.queue, *this),
      device_starts_(*this, &Scheduler::start_device),
      begins_(*this, &Scheduler::on_begin),
      streams_(parts.system, parts.instances),
      is_recorded_(parts.system.devices.size(), 0) {
  for (const workload::Device& device : parts.system.devices) {
    if (device.slots.size() < kMaxIndex) continue;
    ROSTAM_THROW(ConfigError, "accelerator " << device.accelerator << " has " << device.slots.size()
                                             << " communication slots; at most " << kMaxIndex - 1 << " fit");
  }
  for (const int32_t device : parts.options.timeline_devices) is_recorded_[parts.system.device_stand_in[device]] = 1;
}

void Scheduler::start() {
  for (int32_t d = 0; d < streams_.num_devices(); ++d) {
    parts_.queue.schedule(parts_.system.devices[d].start, Priority::kNormal, &device_starts_, pack(d, 0, epoch_of(d)));
  }
}

void Scheduler::start_device(uint64_t payload) {
  const int32_t d = high(payload);
  if (runtime::epoch_of(payload) == epoch_of(d)) make_instance(d);
}

void Scheduler::cut(int32_t d) {
  kernels_.stop(d);
  streams_.reset(d, parts_.queue.now());
}

void Scheduler::restart(int32_t d, SimTime when) {
  streams_.reset(d, when);
  parts_.queue.schedule(when, Priority::kNormal, &device_starts_, pack(d, 0, epoch_of(d)));
}

// Makes the device's next instance, if its program has one, and lets every stream look at it.
void Scheduler::make_instance(int32_t d) {
  const Instance* made = parts_.instances.make(d, parts_.queue.now());
  if (made == nullptr) return;
  const int64_t sequence = parts_.instances.next(d) - 1;
  const Template& body = parts_.instances.body(*made);
  for (size_t t = 0; t < body.tasks.size(); ++t) {
    if (body.tasks[t].kind == TaskKind::kRecv) parts_.starter.await_message({d, sequence, static_cast<int32_t>(t)});
  }
  for (size_t s = 0; s < body.stream_tasks.size(); ++s) {
    if (!body.stream_tasks[s].empty()) try_stream(d, static_cast<int32_t>(s));
  }
  if (body.stream_tasks[0].empty()) make_instance(d);
  if (body.tasks.empty()) retire_instances(d);
}

// Starts the stream's next task if it is free and the task's dependencies are met.
void Scheduler::try_stream(int32_t d, int32_t s) {
  Stream& stream = streams_.at(d, s);
  if (stream.is_busy) return;
  const Streams::Next next = streams_.find_next(d, s);
  if (next.instance == nullptr) return;
  const TaskState& waiting = next.instance->tasks[next.task];
  if (waiting.num_waiting > 0) return;
  stream.is_busy = true;
  current_device_ = d;
  current_stream_ = s;
  const SimTime now = parts_.queue.now();
  const SimTime start = std::max({waiting.ready + parts_.options.launch_latency, stream.free_since, now});
  if (start == now) {
    begin_task(d, s);
  } else {
    parts_.queue.schedule(start, Priority::kNormal, &begins_, pack(d, s, epoch_of(d)));
  }
}

void Scheduler::on_begin(uint64_t payload) {
  const int32_t d = high(payload);
  if (runtime::epoch_of(payload) == epoch_of(d)) begin_task(d, index_of(payload));
}

void Scheduler::begin_task(int32_t d, int32_t s) {
  Stream& stream = streams_.at(d, s);
  current_device_ = d;
  current_stream_ = s;
  const Streams::Next next = streams_.next(d, s);
  const TaskRef ref = {d, stream.instance, next.task};
  const Task& task = next.body->tasks[next.task];
  TaskState& waited = next.instance->tasks[next.task];
  stream.task_start = parts_.queue.now();
  stream.has_begun = true;
  if (tells_phases_ && !std::exchange(next.instance->has_begun, true)) {
    parts_.client.on_phase_start(d, *next.instance);
  }
  // What decided the start: the last dependency if its end plus the launch is later than the stream's release.
  const bool is_held_by_stream = stream.free_since >= waited.ready + parts_.options.launch_latency;
  CriticalPath::Ref cause = is_held_by_stream || waited.cause.is_empty() ? stream.last : waited.cause;
  if (is_held_by_stream && s > 0) {  // it waited for what its stream did before
    waited.ready = stream.free_since;
    waited.wait = stream.last_wait;
  }
  if (task.kind == TaskKind::kCompute) {
    parts_.breakdown.account_idle(d, stream.free_since, waited, parts_.queue.now());
    waited.cause = std::move(cause);
    kernels_.start(d, task.duration);
    if (ref.sequence + 1 == parts_.instances.next(d)) make_instance(d);
  } else if (task.kind == TaskKind::kCollective) {
    parts_.starter.start_collective(ref, cause);
  } else {
    parts_.starter.start_send(ref, cause);
  }
}

void Scheduler::on_kernel_end(int32_t d) {
  const Stream& stream = streams_.at(d, 0);
  const Streams::Next next = streams_.next(d, 0);
  parts_.breakdown.account_compute(d, stream.task_start, parts_.queue.now());
  const CriticalPath::Ref cause = std::move(next.instance->tasks[next.task].cause);
  finish_task({d, stream.instance, next.task}, stream.task_start, parts_.queue.now(), cause);
}

// Marks a task done: frees its stream, wakes its dependents, retires its instance when that was the last one.
void Scheduler::finish_task(const TaskRef& ref, SimTime start, SimTime end, const CriticalPath::Ref& parent) {
  const int32_t d = ref.device;
  Instance& instance = parts_.instances.at(d, ref.sequence);
  const Template& body = parts_.instances.body(instance);
  const Task& task = body.tasks[ref.task];
  PathNode node;
  node.start = start;
  node.end = end;
  node.device = d;
  node.template_id = instance.template_id;
  node.task = ref.task;
  node.microbatch = instance.microbatch;
  const CriticalPath::Ref done = parts_.path.add(node, parent);
  TaskState& state = instance.tasks[ref.task];
  state.is_done = true;
  state.cause = CriticalPath::Ref();
  const int32_t s = task.slot + 1;
  const bool holds_stream = task.kind != TaskKind::kRecv;
  note_communication(d, task, state, start, end);
  if (is_recorded_[d]) {
    timeline_.push_back({d, s, instance.template_id, ref.task, instance.microbatch, instance.iteration,
                         holds_stream ? streams_.at(d, s).task_start : start, end});
  }
  if (holds_stream) {
    Stream& stream = streams_.at(d, s);
    stream.is_busy = stream.has_begun = false;
    stream.free_since = parts_.queue.now();
    stream.last = done;
    stream.last_wait = state.wait;
    ++stream.position;
  }
  release_dependents(ref, instance, body, done);
  if (holds_stream) try_stream(d, s);
  if (--instance.num_left == 0) {
    parts_.jobs.note_last(d, done);  // not a task that this one has just set off
    retire_instances(d);
  }
}

// Tells the breakdown of communication that has ended. Nothing waits for a kernel on an idle compute stream.
void Scheduler::note_communication(int32_t d, const Task& task, TaskState& state, SimTime start, SimTime end) {
  if (task.kind == TaskKind::kCompute) {
    state.wait = -1;
    return;
  }
  Breakdown::Communication done = {start, start, end, -1, task.category, task.kind == TaskKind::kCollective};
  if (task.kind != TaskKind::kRecv) {
    done.since = state.ready;
    done.start = streams_.at(d, task.slot + 1).task_start;
    done.awaited = state.wait;
  }
  state.wait = parts_.breakdown.end_communication(d, done);
}

void Scheduler::release_dependents(const TaskRef& ref, Instance& instance, const Template& body,
                                   const CriticalPath::Ref& node) {
  const int64_t wait = instance.tasks[ref.task].wait;
  for (const int32_t dependent : body.dependents[ref.task]) {
    TaskState& waiting = instance.tasks[dependent];
    const bool is_tie = waiting.wait >= 0 && waiting.ready == parts_.queue.now();
    waiting.wait = is_tie ? parts_.breakdown.awaited_of(ref.device, waiting.wait, wait) : wait;
    waiting.ready = parts_.queue.now();
    waiting.cause = node;
    if (--waiting.num_waiting == 0) try_stream(ref.device, body.tasks[dependent].slot + 1);
  }
}

// Frees finished instances from the oldest on, and counts iterations.
void Scheduler::retire_instances(int32_t d) {
  while (const std::unique_ptr<Instance> done = parts_.instances.retire(d)) {
    if (tells_phases_) {
      if (!done->has_begun) parts_.client.on_phase_start(d, *done);  // it only received
      parts_.client.on_phase_end(d, *done);
    }
    if (parts_.jobs.end_instance(d, done->iteration, parts_.queue.now())) {
      parts_.client.on_iteration_end(parts_.system.devices[d].job);
    }
  }
}

void Scheduler::fill(workload::SessionResult& result) {
  for (int32_t d = 0; d < streams_.num_devices(); ++d) {
    // A stage may be inside its next iteration's first kernel when the last stage ends this one.
    const Stream& compute = streams_.at(d, 0);
    if (compute.has_begun) parts_.breakdown.account_compute(d, compute.task_start, parts_.queue.now());
    result.device_end_ps.push_back(streams_.last_end(d).ps());
  }
  result.timeline = timeline_;
}

}  // namespace rostam::runtime
