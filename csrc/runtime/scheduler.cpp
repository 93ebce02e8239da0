#include "runtime/scheduler.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace rostam::runtime {

using workload::TaskKind;

Scheduler::Scheduler(const Parts& parts)
    : parts_(parts),
      kernels_(parts.system, parts.options.comm_compute_fraction, parts.queue, *this),
      hosts_(parts.system, parts.options.host_launch, parts.instances, parts.path),
      device_starts_(*this, &Scheduler::start_device),
      begins_(*this, &Scheduler::on_begin, &Scheduler::fetch_begin),
      points_(*this, &Scheduler::on_point),
      streams_(parts.system, parts.instances),
      is_recorded_(parts.system.devices.size(), 0) {
  for (int32_t d = 0; d < streams_.num_devices(); ++d) {
    if (streams_.num_streams(d) <= kMaxIndex) continue;
    ROSTAM_THROW(ConfigError, "accelerator "
                                  << parts.system.devices[d].accelerator << " has " << streams_.num_streams(d) - 1
                                  << " communication slots and streams; at most " << kMaxIndex - 1 << " fit");
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
  kernels_.stop(d, parts_.queue.now());
  streams_.reset(d, parts_.queue.now());
}

void Scheduler::restart(int32_t d, SimTime when) {
  kernels_.stop(d, when);
  streams_.reset(d, when);
  hosts_.reset(d, when);
  parts_.queue.schedule(when, Priority::kNormal, &device_starts_, pack(d, 0, epoch_of(d)));
}

// What an event of a device looks at lies all over memory, and others' events have come since its last one: asks for
// all of it at once, before it is used one after another.
void Scheduler::fetch(int32_t d, int32_t s) const {
  __builtin_prefetch(&parts_.system.devices[d]);
  parts_.instances.fetch(d);
  streams_.fetch(d, s);
  parts_.breakdown.fetch(d);
}

void Scheduler::fetch_begin(uint64_t payload) const {
  const int32_t d = high(payload), s = index_of(payload);
  fetch(d, s);
  if (s == 0) kernels_.fetch(d);
}

// Makes the device's next instance, if its program has one, and lets every stream look at it.
void Scheduler::make_instance(int32_t d) {
  const Instance* made = parts_.instances.make(d, parts_.queue.now());
  if (made == nullptr) return;
  hosts_.add_newest(d);
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
  if (next.instance == nullptr || next.body->tasks[next.task].stream != s) return;  // orders start nothing
  const TaskState& waiting = next.instance->tasks[next.task];
  if (waiting.num_waiting > 0 || !streams_.is_in_turn(d, next)) return;
  current_device_ = d;
  current_stream_ = s;
  const TaskRef ref = {d, stream.instance, next.task};
  const bool is_released = next.body->tasks[next.task].is_awaited_by_host && release_host(ref, next, stream);
  const SimTime now = parts_.queue.now();
  SimTime start = std::max({released_at(next), stream.free_since, now});
  if (hosts_.is_limiting()) {
    const SimTime issued = hosts_.earliest(ref);
    if (issued == SimTime::never()) return;  // looked at again when its host goes on
    start = std::max(start, issued);
  }
  stream.is_busy = true;
  if (start == now) {
    begin_task(d, s);
  } else {
    parts_.queue.schedule(start, Priority::kNormal, &begins_, pack(d, s, epoch_of(d)));
  }
  if (is_released) try_all_streams(d);
}

// Of a task that nothing waits for its host would launch anyway, a launch is no wait of the device. Nor has a mark one.
SimTime Scheduler::released_at(const Streams::Next& next) const {
  if (next.body->tasks[next.task].is_mark) return next.instance->tasks[next.task].ready;
  if (hosts_.is_limiting() && next.body->num_deps[next.task] == 0) return SimTime::zero();
  return next.instance->tasks[next.task].ready + parts_.options.launch_latency;
}

// The host has waited for what a task that may start now waited for. Returns whether it goes on now.
bool Scheduler::release_host(const TaskRef& ref, const Streams::Next& next, const Stream& stream) {
  if (!hosts_.is_limiting()) return false;
  const TaskState& waited = next.instance->tasks[next.task];
  const bool is_last = next.body->num_deps[next.task] > 0 && waited.ready > stream.free_since;
  return is_last ? hosts_.release(ref, waited.ready, waited.cause)
                 : hosts_.release(ref, stream.free_since, stream.last);
}

// The communicator goes on with its next task, if that is the next one of its stream.
void Scheduler::try_order(int32_t d, int32_t order) {
  const Streams::Next first = streams_.find_next(d, order);
  if (first.instance != nullptr) try_stream(d, first.body->tasks[first.task].stream);
}

void Scheduler::try_all_streams(int32_t d) {
  for (int32_t s = 0; s < streams_.num_streams(d); ++s) try_stream(d, s);
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
  const SimTime released = released_at(next);
  const bool is_held_by_stream = stream.free_since >= released;
  CriticalPath::Ref cause = is_held_by_stream || waited.cause.is_empty() ? stream.last : waited.cause;
  const SimTime launched = std::max(released, stream.free_since);
  const bool is_held_by_host = hosts_.is_limiting() && launched < stream.task_start;
  stream.host_wait = is_held_by_host ? stream.task_start - launched : SimTime::zero();
  if (is_held_by_host) cause = hosts_.add_to_path(ref, stream.task_start);
  if (is_held_by_stream && (s > 0 || stream.last_wait >= 0)) {  // it waited for what its stream did before
    waited.ready = stream.free_since;
    waited.wait = stream.last_wait;
  }
  if (task.kind == TaskKind::kCompute) {
    waited.cause = std::move(cause);
    begin_compute(ref, next, is_held_by_host ? launched : stream.task_start);
  } else {
    parts_.starter.start_communication(ref, cause);
  }
  if (s == 0 && ref.sequence + 1 == parts_.instances.next(d)) make_instance(d);
}

// Where no kernel ran until now, the device was idle for what this one waited for. A point of another stream is none.
void Scheduler::begin_compute(const TaskRef& ref, const Streams::Next& next, SimTime launched) {
  const int32_t d = ref.device, s = next.body->tasks[next.task].stream;
  if (is_point(next.body->tasks[next.task])) {
    parts_.queue.schedule(parts_.queue.now(), Priority::kNormal, &points_, pack(d, s, epoch_of(d)));
  } else {
    if (!kernels_.is_busy(d)) {
      parts_.breakdown.account_idle(d, kernels_.idle_since(d), next.instance->tasks[next.task], launched,
                                    parts_.queue.now());
    } else {
      parts_.breakdown.clear_ended(d);
    }
    kernels_.start(d, s, drawn_duration(d, *next.instance, next.task));
  }
}

void Scheduler::on_point(uint64_t payload) {
  const int32_t d = high(payload);
  if (runtime::epoch_of(payload) == epoch_of(d)) end_compute(d, index_of(payload));
}

// How long this run of a compute task takes on a device of its nominal speed.
SimTime Scheduler::drawn_duration(int32_t d, const Instance& instance, int32_t task) const {
  const Task& body = parts_.instances.body(instance).tasks[task];
  const Variation& variation = parts_.options.kernel_variation;
  if (variation.is_none()) return body.duration;
  const uint64_t where =
      mix(static_cast<uint64_t>(parts_.system.devices[d].accelerator)) + pack(instance.iteration, task);
  const double factor =
      variation.scaled_factor(mix(where) + pack(instance.template_id, instance.microbatch), body.variation);
  return SimTime::from_whole_ps(std::ceil(static_cast<double>(body.duration.ps()) * factor));
}

void Scheduler::on_kernel_end(int32_t d, int32_t s) {
  if (!kernels_.is_busy(d)) parts_.breakdown.account_compute(d, kernels_.busy_since(d), parts_.queue.now());
  end_compute(d, s);
}

void Scheduler::end_compute(int32_t d, int32_t s) {
  const Stream& stream = streams_.at(d, s);
  const Streams::Next next = streams_.next(d, s);
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
  parts_.instances.name(ref, node);
  const CriticalPath::Ref done = parts_.path.add(node, parent);
  TaskState& state = instance.tasks[ref.task];
  state.is_done = true;
  state.cause = CriticalPath::Ref();
  const int32_t s = task.stream;
  const bool holds_stream = task.kind != TaskKind::kRecv;
  note_communication(d, task, state, start, end);
  if (is_recorded_[d]) {
    timeline_.push_back({d, s, node.template_id, node.task, node.microbatch, instance.iteration,
                         holds_stream ? streams_.at(d, s).task_start : start, end,
                         holds_stream ? streams_.at(d, s).host_wait : SimTime::zero()});
  }
  if (holds_stream) {
    Stream& stream = streams_.at(d, s);
    stream.is_busy = stream.has_begun = false;
    stream.free_since = parts_.queue.now();
    stream.last = done;
    stream.last_wait = state.wait;
    ++stream.position;
    if (task.order >= 0) ++streams_.at(d, task.order).position;
  }
  release_dependents(ref, instance, body, done);
  if (holds_stream) try_stream(d, s);
  if (task.order >= 0) try_order(d, task.order);
  if (--instance.num_left == 0) {
    parts_.jobs.note_last(d, done);  // not a task that this one has just set off
    retire_instances(d);
  }
}

// Tells the breakdown of communication that has ended. Nothing waits for a kernel on an idle compute stream.
void Scheduler::note_communication(int32_t d, const Task& task, TaskState& state, SimTime start, SimTime end) {
  if (task.kind == TaskKind::kCompute) {
    if (!is_point(task)) state.wait = -1;  // what waits for a point waits for what that one waited for
    return;
  }
  Breakdown::Communication done = {
      start, start, SimTime::zero(), end, -1, task.category, task.kind == TaskKind::kCollective};
  if (task.kind != TaskKind::kRecv) {
    done.since = state.ready;
    const Stream& stream = streams_.at(d, task.stream);
    done.start = stream.task_start;
    if (stream.host_wait > SimTime::zero()) done.issued = stream.task_start;
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
    if (--waiting.num_waiting == 0) try_stream(ref.device, body.tasks[dependent].stream);
  }
}

// Frees finished instances from the oldest on, and counts iterations.
void Scheduler::retire_instances(int32_t d) {
  while (const Instance* const done = parts_.instances.retire(d)) {
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
    if (kernels_.is_busy(d)) parts_.breakdown.account_compute(d, kernels_.busy_since(d), parts_.queue.now());
    result.device_end_ps.push_back(streams_.last_end(d).ps());
  }
  result.timeline = timeline_;
}

}  // namespace rostam::runtime
