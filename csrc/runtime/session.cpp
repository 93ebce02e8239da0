#include "runtime/session.h"

#include <algorithm>

#include "runtime/payload.h"

namespace rostam::runtime {

using folding::fold;
using folding::unfolded;
using workload::Program;
using workload::ProgramStep;
using workload::TaskKind;
using workload::Template;

Session::Session(std::shared_ptr<const TaskGraph> graph, std::shared_ptr<routing::RouteTable> routes,
                 SessionOptions options)
    : graph_(std::move(graph)),
      route_table_(std::move(routes)),
      options_(std::move(options)),
      device_starts_(*this, &Session::start_device),
      link_events_(*this, &Session::apply_event),
      begins_(*this, &Session::begin_task),
      compute_ends_(*this, &Session::end_compute),
      collective_ends_(*this, &Session::complete_collective),
      quiet_ends_(*this, &Session::end_quietly),
      late_arrivals_(*this, &Session::on_delivered),
      end_points_(*route_table_) {
  if (!graph_->is_frozen) throw ConfigError("the task graph must be frozen before a session takes it");
  if (!(options_.comm_compute_fraction >= 0 && options_.comm_compute_fraction < 1)) {
    ROSTAM_THROW(ConfigError,
                 "comm_compute_fraction is " << options_.comm_compute_fraction << "; it must be in [0, 1)");
  }
  if (options_.min_iterations < 1 || options_.max_iterations < options_.min_iterations) {
    ROSTAM_THROW(ConfigError, "iterations " << options_.min_iterations << " to " << options_.max_iterations
                                            << "; both must be >= 1 and in order");
  }
  check_options();
  const bool can_fold = network::engine_traits(options_.fidelity).can_fold;
  folding_ = options_.enable_folding && can_fold ? fold(*graph_, *route_table_, options_.events)
                                                 : unfolded(*graph_, *route_table_);
  set_up();
}

void Session::check_options() const {
  const auto num_links = static_cast<int32_t>(route_table_->links().capacities.size());
  for (const LinkEvent& event : options_.events) {
    if (event.link < 0 || event.link >= num_links || !(event.bytes_per_s >= 0) || event.time < SimTime::zero()) {
      ROSTAM_THROW(ConfigError, "event at " << event.time.seconds() << " s sets link " << event.link << " to "
                                            << event.bytes_per_s << " bytes/s; links are 0 to " << num_links - 1);
    }
  }
  const auto num_devices = static_cast<int32_t>(graph_->devices.size());
  const int32_t num_accelerators = route_table_->num_accelerators();
  for (int32_t d = 0; d < num_devices; ++d) {
    const int32_t accelerator = graph_->devices[d].accelerator;
    if (accelerator < num_accelerators) continue;
    ROSTAM_THROW(ConfigError, "device " << d << " is accelerator " << accelerator << "; the fabric has 0 to "
                                        << num_accelerators - 1);
  }
  for (const int32_t device : options_.timeline_devices) {
    if (device >= 0 && device < num_devices) continue;
    ROSTAM_THROW(ConfigError, "the timeline names device " << device << "; devices are 0 to " << num_devices - 1);
  }
}

void Session::set_up() {
  network_ = network::make_network(options_.fidelity, queue_, network::LinkTable(folding_.capacities), *this);
  if (options_.enable_folding && network::engine_traits(options_.fidelity).exact_when_alone) {
    const auto route = [this](int32_t d, int32_t slot, int32_t peer) { return make_route(d, slot, peer); };
    quiet_rings_ = std::make_unique<QuietRings>(*graph_, folding_, options_.events, route);
  }
  devices_ = std::vector<DeviceState>(folding_.representative.size());
  routes_.assign(folding_.channels.size(), kNoRoute);
  wire_sent_.assign(devices_.size(), 0.0);
  wire_received_.assign(devices_.size(), 0.0);
  jobs_.resize(graph_->num_jobs);
  is_recorded_.assign(devices_.size(), 0);
  for (const int32_t device : options_.timeline_devices) is_recorded_[folding_.class_of_device[device]] = 1;
  // Capacities that change at time 0 hold for everything that starts then.
  for (size_t e = 0; e < options_.events.size(); ++e) {
    queue_.schedule(options_.events[e].time, Priority::kNormal, &link_events_, e);
  }
  for (int32_t d = 0; d < static_cast<int32_t>(devices_.size()); ++d) {
    const Device& device = device_of(d);
    DeviceState& state = devices_[d];
    state.slots.resize(device.slots.size());
    state.streams.resize(device.slots.size() + 1);
    for (Stream& stream : state.streams) stream.free_since = device.start;
    Job& job = jobs_[device.job];
    if (job.ends.empty() || device.start < job.ends.front()) job.ends.assign(1, device.start);
    ++job.num_devices;
    queue_.schedule(device.start, Priority::kNormal, &device_starts_, d);
  }
}

void Session::apply_event(uint64_t index) {
  const LinkEvent& event = options_.events[index];
  network_->set_capacity(folding_.class_of_link[event.link], event.bytes_per_s);
}

void Session::start_device(uint64_t device) { make_instance(static_cast<int32_t>(device)); }

Session::Instance& Session::instance_of(int32_t device, int64_t sequence) {
  DeviceState& state = devices_[device];
  return *state.live[static_cast<size_t>(sequence - state.first_live)];
}

// Makes the device's next instance, if its program has one, and lets every stream look at it.
void Session::make_instance(int32_t d) {
  DeviceState& state = devices_[d];
  const Program& program = graph_->programs[device_of(d).program];
  const int64_t length = program.num_steps();
  const int64_t sequence = state.next_instance;
  if (length == 0 || sequence / length >= options_.max_iterations) return;
  ++state.next_instance;
  const ProgramStep entry = program.step(sequence % length);
  const Template& body = graph_->templates[entry.template_id];
  auto made = std::make_unique<Instance>();
  made->template_id = entry.template_id;
  made->microbatch = entry.microbatch;
  made->iteration = static_cast<int32_t>(sequence / length);
  made->num_left = static_cast<int32_t>(body.tasks.size());
  made->tasks.resize(body.tasks.size());
  for (size_t t = 0; t < body.tasks.size(); ++t) {
    made->tasks[t].num_waiting = body.num_deps[t];
    made->tasks[t].ready = queue_.now();
  }
  if (static_cast<int32_t>(state.instances_left.size()) <= made->iteration) {
    state.instances_left.resize(made->iteration + 1, length);
  }
  state.live.push_back(std::move(made));
  for (size_t t = 0; t < body.tasks.size(); ++t) {
    if (body.tasks[t].kind == TaskKind::kRecv) await_message(d, sequence, static_cast<int32_t>(t));
  }
  for (size_t s = 0; s < body.stream_tasks.size(); ++s) {
    if (!body.stream_tasks[s].empty()) try_stream(d, static_cast<int32_t>(s));
  }
  if (body.stream_tasks[0].empty()) make_instance(d);
  if (body.tasks.empty()) retire_instances(d);
}

// Starts the stream's next task if it is free and the task's dependencies are met.
void Session::try_stream(int32_t d, int32_t s) {
  DeviceState& state = devices_[d];
  Stream& stream = state.streams[s];
  if (stream.is_busy) return;
  if (stream.instance < state.first_live) {
    stream.instance = state.first_live;
    stream.position = 0;
  }
  // Move past instances whose part on this stream is done.
  while (stream.instance < state.next_instance) {
    const auto& lists = graph_->templates[instance_of(d, stream.instance).template_id].stream_tasks;
    if (s < static_cast<int32_t>(lists.size()) && stream.position < static_cast<int32_t>(lists[s].size())) break;
    ++stream.instance;
    stream.position = 0;
  }
  if (stream.instance >= state.next_instance) return;
  Instance& instance = instance_of(d, stream.instance);
  const int32_t task = graph_->templates[instance.template_id].stream_tasks[s][stream.position];
  const TaskState& waiting = instance.tasks[task];
  if (waiting.num_waiting > 0) return;
  stream.is_busy = true;
  current_device_ = d;
  current_stream_ = s;
  const SimTime start = std::max({waiting.ready + options_.launch_latency, stream.free_since, queue_.now()});
  if (start == queue_.now()) {
    begin_task(pack(d, s));
  } else {
    queue_.schedule(start, Priority::kNormal, &begins_, pack(d, s));
  }
}

void Session::begin_task(uint64_t payload) {
  const int32_t d = high(payload), s = low(payload);
  DeviceState& state = devices_[d];
  Stream& stream = state.streams[s];
  current_device_ = d;
  current_stream_ = s;
  const int64_t sequence = stream.instance;
  Instance& instance = instance_of(d, sequence);
  const int32_t index = graph_->templates[instance.template_id].stream_tasks[s][stream.position];
  const Task& task = graph_->templates[instance.template_id].tasks[index];
  stream.task_start = queue_.now();
  stream.has_begun = true;
  TaskState& waited = instance.tasks[index];
  // What decided the start: the last dependency if its end plus the launch is later than the stream's release.
  const bool is_held_by_stream = stream.free_since >= waited.ready + options_.launch_latency;
  CriticalPath::Ref cause = is_held_by_stream || waited.cause.is_empty() ? stream.last : waited.cause;
  if (task.kind == TaskKind::kCompute) {
    account_idle(d, stream.free_since, waited, queue_.now());
    waited.cause = std::move(cause);
    state.work_left_ps = std::ceil(static_cast<double>(task.duration.ps()) * device_of(d).slowdown);
    run_kernel(d);
    if (sequence + 1 == state.next_instance) make_instance(d);
  } else if (task.kind == TaskKind::kCollective) {
    join_collective(d, sequence, index, std::move(cause));
  } else {
    start_send(d, sequence, index, cause);
  }
}

double Session::compute_speed(int32_t d) const {
  return devices_[d].num_collectives > 0 ? 1 - options_.comm_compute_fraction : 1;
}

// Schedules the end of the device's kernel from its work left and its present speed.
void Session::run_kernel(int32_t d) {
  DeviceState& state = devices_[d];
  state.work_since = queue_.now();
  const double ps = std::ceil(state.work_left_ps / compute_speed(d));
  const SimTime end = queue_.now() + SimTime::from_whole_ps(ps);
  queue_.schedule(end, Priority::kNormal, &compute_ends_, pack(d, static_cast<int32_t>(++state.work_version)));
}

// Called when the device joins or leaves a collective: a running kernel goes on at another speed.
void Session::change_collectives(int32_t d, int32_t change) {
  DeviceState& state = devices_[d];
  const double before = compute_speed(d);
  const bool is_running = state.streams[0].has_begun;
  if (is_running) state.work_left_ps -= static_cast<double>((queue_.now() - state.work_since).ps()) * before;
  state.work_since = queue_.now();
  state.num_collectives += change;
  if (!is_running || compute_speed(d) == before) return;
  state.work_left_ps = std::max(0.0, state.work_left_ps);
  run_kernel(d);
}

void Session::end_compute(uint64_t payload) {
  const int32_t d = high(payload);
  if (devices_[d].work_version != static_cast<uint32_t>(low(payload))) return;
  Stream& stream = devices_[d].streams[0];
  const int64_t sequence = stream.instance;
  Instance& instance = instance_of(d, sequence);
  const int32_t index = graph_->templates[instance.template_id].stream_tasks[0][stream.position];
  account_compute(d, stream.task_start, queue_.now());
  const CriticalPath::Ref cause = instance.tasks[index].cause;
  finish_task(d, sequence, index, stream.task_start, queue_.now(), cause);
}

// Marks a task done: frees its stream, wakes its dependents, retires its instance when that was the last one.
// `end` is now, or before it for a message that came before its recv was made.
void Session::finish_task(int32_t d, int64_t sequence, int32_t index, SimTime start, SimTime end,
                          const CriticalPath::Ref& parent) {
  Instance& instance = instance_of(d, sequence);
  const Task& task = graph_->templates[instance.template_id].tasks[index];
  PathNode node;
  node.start = start;
  node.end = end;
  node.device = d;
  node.template_id = instance.template_id;
  node.task = index;
  node.microbatch = instance.microbatch;
  const CriticalPath::Ref done = path_.add(node, parent);
  TaskState& state = instance.tasks[index];
  state.is_done = true;
  state.cause = CriticalPath::Ref();
  const int32_t stream_index = task.slot + 1;
  const bool holds_stream = task.kind != TaskKind::kRecv;
  if (is_recorded_[d]) {
    timeline_.push_back({d, stream_index, instance.template_id, index, instance.microbatch, instance.iteration,
                         holds_stream ? devices_[d].streams[stream_index].task_start : start, end});
  }
  if (holds_stream) {
    Stream& stream = devices_[d].streams[stream_index];
    stream.is_busy = stream.has_begun = false;
    stream.free_since = queue_.now();
    stream.last = done;
    ++stream.position;
  }
  release_dependents(d, sequence, index, done);
  if (holds_stream) try_stream(d, stream_index);
  if (--instance.num_left == 0) {
    jobs_[device_of(d).job].last = done;  // not a task that this one has just set off
    retire_instances(d);
  }
}

void Session::release_dependents(int32_t d, int64_t sequence, int32_t index, const CriticalPath::Ref& node) {
  Instance& instance = instance_of(d, sequence);
  const Template& body = graph_->templates[instance.template_id];
  for (const int32_t dependent : body.dependents[index]) {
    TaskState& waiting = instance.tasks[dependent];
    waiting.ready = queue_.now();
    waiting.cause = node;
    if (--waiting.num_waiting == 0) try_stream(d, body.tasks[dependent].slot + 1);
  }
}

// Frees finished instances from the oldest on, and counts iterations.
void Session::retire_instances(int32_t d) {
  DeviceState& state = devices_[d];
  while (!state.live.empty() && state.live.front()->num_left == 0) {
    const std::unique_ptr<Instance> done = std::move(state.live.front());
    state.live.pop_front();
    ++state.first_live;
    end_instance(d, *done);
  }
}

void Session::end_instance(int32_t d, const Instance& instance) {
  if (--devices_[d].instances_left[instance.iteration] > 0) return;
  const int32_t job_index = device_of(d).job;
  Job& job = jobs_[job_index];
  if (static_cast<int32_t>(job.devices_left.size()) <= instance.iteration) {
    job.devices_left.resize(instance.iteration + 1, job.num_devices);
  }
  if (--job.devices_left[instance.iteration] == 0) end_iteration(job_index, instance.iteration);
}

void Session::end_iteration(int32_t job_index, int32_t iteration) {
  Job& job = jobs_[job_index];
  job.ends.push_back(queue_.now());
  job.ended_by = job.last;
  ROSTAM_CHECK(static_cast<int32_t>(job.ends.size()) == iteration + 2, "iterations ended out of order");
  if (job_index == 0) {
    std::swap(link_bytes_before_, link_bytes_now_);
    std::swap(link_busy_before_, link_busy_now_);
    snapshot_links(link_bytes_now_, link_busy_now_);
  }
  const int32_t num_done = iteration + 1;
  if (num_done >= options_.max_iterations) {
    job.is_finished = true;
  } else if (num_done >= options_.min_iterations && num_done >= 2 && jobs_.size() == 1) {
    const size_t n = job.ends.size();
    const double last = (job.ends[n - 1] - job.ends[n - 2]).seconds();
    const double before = (job.ends[n - 2] - job.ends[n - 3]).seconds();
    job.is_finished = std::abs(last - before) <= options_.steady_tolerance * last;
  }
}

SessionResult Session::run() {
  if (has_run_) throw ConfigError("a session runs once");
  has_run_ = true;
  const auto is_running = [](const Job& job) { return job.num_devices > 0 && !job.is_finished; };
  try {
    while (std::any_of(jobs_.begin(), jobs_.end(), is_running)) {
      if (queue_.is_empty()) throw_deadlock();
      queue_.run_next();
    }
  } catch (const RangeError& error) {
    ROSTAM_THROW(ConfigError, error.what()
                                  << "; it happened at " << queue_.now().seconds() << " s in " << describe_current());
  }
  check_conservation();
  check_accelerators();
  return collect();
}

}  // namespace rostam::runtime
