// Session, third part: where every device's time went, conservation checks, errors and results.
#include <algorithm>

#include "runtime/session.h"

namespace rostam::runtime {

using workload::JobResult;
using workload::kBubbleBucket;
using workload::kComputeBucket;
using workload::kFirstCategoryBucket;
using workload::kLaunchBucket;
using workload::TaskKind;

// Adds [from, to] to a bucket, cut at the iteration ends known by now: to <= now, so all that matter are known.
void Session::account(int32_t d, int32_t bucket, SimTime from, SimTime to) {
  if (to <= from) return;
  const std::vector<SimTime>& ends = jobs_[device_of(d).job].ends;
  const size_t num_buckets = graph_->categories.size() + kFirstCategoryBucket;
  // Window w lies between ends[w] and ends[w + 1]; the last one is open.
  for (size_t w = ends.size(); w-- > 0 && from < to;) {
    const SimTime begin = std::max(from, ends[w]);
    if (begin >= to) continue;
    if (breakdown_.size() <= w) breakdown_.resize(w + 1);
    if (breakdown_[w].empty()) breakdown_[w].assign(devices_.size() * num_buckets, 0);
    breakdown_[w][static_cast<size_t>(d) * num_buckets + static_cast<size_t>(bucket)] += (to - begin).ps();
    to = begin;
  }
}

void Session::account_compute(int32_t d, SimTime start, SimTime end) { account(d, kComputeBucket, start, end); }

// The compute stream idled from `from` until `start` (now). Until `ready` it waited for the dependency that ended
// last: a message is exposed from the moment it was sent, before that the device's own collectives are, and where
// none was pending it is bubble; a collective is exposed while this rank is in it. After `ready` the launch is left.
void Session::account_idle(int32_t d, SimTime from, const TaskState& task, SimTime start) {
  SimTime cursor = from;
  if (!task.cause.is_empty() && task.ready > from) {
    const PathNode& cause = *task.cause;
    const Task& awaited = graph_->templates[cause.template_id].tasks[cause.task];
    const SimTime ready = std::min(task.ready, start);
    if (awaited.kind == TaskKind::kRecv) {
      const SimTime sent = std::min(std::max(cursor, cause.start), ready);
      account_unsent(d, cursor, sent);
      cursor = sent;
    }
    if (awaited.kind != TaskKind::kCompute) account(d, kFirstCategoryBucket + awaited.category, cursor, ready);
    cursor = ready;
  }
  account(d, kLaunchBucket, cursor, start);
  devices_[d].spans.clear();
}

// The device waits for a message that is not sent yet: its own pending collectives are exposed, the rest is bubble.
void Session::account_unsent(int32_t d, SimTime from, SimTime to) {
  std::vector<Span> spans = devices_[d].spans;
  const std::vector<SlotState>& slots = devices_[d].slots;
  for (const SlotState& slot : slots) {
    for (const Participation& part : slot.queue) {
      if (!part.is_joined) continue;
      const Task& task = graph_->templates[instance_of(d, part.instance).template_id].tasks[part.task];
      spans.push_back({part.joined, to, task.category});
    }
  }
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.start < b.start; });
  SimTime cursor = from;
  for (const Span& span : spans) {
    const SimTime begin = std::max(cursor, span.start), end = std::min(to, span.end);
    if (begin >= end) continue;
    account(d, kBubbleBucket, cursor, begin);
    account(d, kFirstCategoryBucket + span.category, begin, end);
    cursor = end;
  }
  account(d, kBubbleBucket, cursor, to);
}

void Session::snapshot_links(std::vector<double>& bytes, std::vector<double>& busy) const {
  network::NetworkStats stats = network_->stats();
  bytes = std::move(stats.link_bytes);
  busy = std::move(stats.link_busy_s);
  if (quiet_rings_) quiet_rings_->add_loads(queue_.now(), bytes, busy);
}

// Bytes sent = bytes received in every finished iteration, and what a collective sent is its closed form.
void Session::check_conservation() const {
  for (const Job& job : jobs_) {
    ROSTAM_CHECK(jobs_.size() > 1 || job.num_devices == 0 || job.ends.size() >= 2, "a job ended without an iteration");
  }
  const size_t num_categories = graph_->categories.size();
  for (size_t i = 0; i < traffic_.size(); ++i) {
    for (size_t k = 0; k < traffic_[i].size(); ++k) {
      if (i + 1 >= jobs_[k / num_categories].ends.size()) continue;  // that job stopped inside this iteration
      ROSTAM_CHECK(traffic_[i][k].sent_bytes == traffic_[i][k].received_bytes,
                   "job " << k / num_categories << ", iteration " << i << ", " << graph_->categories[k % num_categories]
                          << ": " << traffic_[i][k].sent_bytes << " bytes sent, " << traffic_[i][k].received_bytes
                          << " received");
    }
  }
  // A message that is left in a finished iteration and has a receive: another one was taken for it.
  for (const auto& [key, arrival] : arrived_) {
    const Device& device = device_of(key.device);
    if (key.iteration + 1 >= static_cast<int32_t>(jobs_[device.job].ends.size())) continue;
    for (const int32_t id : graph_->programs[device.program].templates()) {
      for (const Task& task : graph_->templates[id].tasks) {
        if (task.kind == TaskKind::kRecv && task.channel == key.channel) throw_sent_twice(key);
      }
    }
  }
  size_t finished = completed_.size();
  for (const Job& job : jobs_) finished = std::min(finished, job.ends.size() - 1);
  for (size_t i = 0; i < finished; ++i) {
    for (size_t k = 0; k < completed_[i].size(); ++k) {
      const Participants& all = completed_[i][k];
      const collectives::Schedule& schedule = *graph_->schedules[k];
      // Every group completes whole, so ranks / p groups sent the closed form each.
      const auto product = [](int64_t a, int64_t b) { return static_cast<__int128>(a) * b; };
      ROSTAM_CHECK(
          product(all.chunks_sent, schedule.shape().num_ranks) == product(all.num_ranks, schedule.total_chunks_sent()),
          "schedule " << k << ": " << all.num_ranks << " ranks sent " << all.chunks_sent
                      << " chunks, the closed form of a group is " << schedule.total_chunks_sent());
    }
  }
}

void Session::throw_sent_twice(const MailboxKey& key) const {
  ROSTAM_THROW(ConfigError, "two messages on channel " << key.channel << " of micro-batch " << key.microbatch
                                                       << " come to accelerator " << device_of(key.device).accelerator
                                                       << " in one iteration; give each a channel of its own");
}

// MODEL K29, over the whole run and every plane's share, messages that are under way included.
void Session::check_accelerators() {
  for (const Message& message : messages_) {
    if (!message.is_sending) continue;
    const double left = network_->backlog(message.transfer);
    count_on_wire(message.source, message.destination, static_cast<double>(wire_bytes(message.bytes)) - left);
  }
  std::vector<double> bytes, busy;
  snapshot_links(bytes, busy);
  if (quiet_rings_) {
    for (const QuietRings::Carried& one : quiet_rings_->carried(queue_.now())) {
      count_on_wire(one.source, folding_.class_of_device[one.peer], one.bytes);
    }
  }
  const auto num_accelerators = static_cast<size_t>(route_table_->num_accelerators());
  std::vector<double> link_bytes, sent(num_accelerators), received(num_accelerators);
  for (const int32_t link : folding_.class_of_link) link_bytes.push_back(bytes[link]);
  for (size_t d = 0; d < graph_->devices.size(); ++d) {
    const int32_t simulated = folding_.class_of_device[d];
    sent[graph_->devices[d].accelerator] += wire_sent_[simulated];
    received[graph_->devices[d].accelerator] += wire_received_[simulated];
  }
  end_points_.check_bytes(link_bytes, sent, received);
}

// The task that a stream of the device last looked at.
std::string Session::describe_current() const {
  if (current_device_ < 0) return "the set-up";
  const DeviceState& state = devices_[current_device_];
  const Stream& stream = state.streams[current_stream_];
  if (stream.instance < state.first_live || stream.instance >= state.next_instance) return "a task that has ended";
  const Instance& instance = *state.live[static_cast<size_t>(stream.instance - state.first_live)];
  const auto& tasks = graph_->templates[instance.template_id].stream_tasks[current_stream_];
  if (stream.position >= static_cast<int32_t>(tasks.size())) return "a task that has ended";
  return describe(current_device_, instance, tasks[stream.position]);
}

// Nothing else can happen any more: messages that would be through after the end of simulated time are what comes next.
void Session::throw_if_endless() const {
  for (const Message& message : messages_) {
    if (!message.is_sending || !network_->is_endless(message.transfer)) continue;
    ROSTAM_THROW(ConfigError, "a message of " << message.bytes << " bytes from accelerator "
                                              << device_of(message.source).accelerator << " to "
                                              << graph_->devices[message.peer].accelerator << " ("
                                              << graph_->categories[message.category] << ", iteration "
                                              << message.iteration << ") has " << network_->backlog(message.transfer)
                                              << " bytes left at " << queue_.now().seconds()
                                              << " s and would not be through by the end of simulated time, 106 days;"
                                                 " look for a lost unit in a bandwidth or size");
  }
}

std::string Session::describe(int32_t d, const Instance& instance, int32_t index) const {
  const Task& task = graph_->templates[instance.template_id].tasks[index];
  static const char* const kNames[] = {"compute", "collective", "send", "recv"};
  std::ostringstream text;
  text << kNames[static_cast<int>(task.kind)] << " task " << index << " of template " << instance.template_id
       << ", micro-batch " << instance.microbatch << ", iteration " << instance.iteration << ", on accelerator "
       << device_of(d).accelerator;
  if (task.kind != TaskKind::kCompute) text << " (" << graph_->categories[task.category] << ")";
  return text.str();
}

void Session::throw_deadlock() const {
  throw_if_endless();
  std::ostringstream text;
  text << "nothing can happen any more at " << queue_.now().seconds() << " s, but tasks remain";
  const int64_t num_active = network_->stats().num_active;
  if (num_active > 0) {
    text << "; " << num_active << " messages are stalled on links of capacity 0";
  }
  int32_t num_listed = 0;
  for (int32_t d = 0; d < static_cast<int32_t>(devices_.size()) && num_listed < 10; ++d) {
    for (const auto& instance : devices_[d].live) {
      for (int32_t t = 0; t < static_cast<int32_t>(instance->tasks.size()) && num_listed < 10; ++t) {
        const TaskState& state = instance->tasks[t];
        if (state.is_done) continue;
        text << "\n  " << describe(d, *instance, t) << " awaits "
             << (state.num_waiting > 0 ? std::to_string(state.num_waiting) + " dependencies"
                                       : std::string("its stream, its peers or its bytes"));
        ++num_listed;
      }
    }
  }
  throw DeadlockError(text.str());
}

SessionResult Session::collect() {
  SessionResult result;
  // A stage may be inside its next iteration's first kernel when the last stage ends this one.
  for (size_t d = 0; d < devices_.size(); ++d) {
    const Stream& stream = devices_[d].streams[0];
    if (stream.has_begun) account_compute(static_cast<int32_t>(d), stream.task_start, queue_.now());
  }
  for (const Job& job : jobs_) {
    JobResult one;
    one.iteration_ends = job.ends;
    const size_t n = job.ends.size();
    if (n >= 3) {
      const double last = (job.ends[n - 1] - job.ends[n - 2]).seconds();
      const double before = (job.ends[n - 2] - job.ends[n - 3]).seconds();
      one.is_steady = std::abs(last - before) <= options_.steady_tolerance * last;
    }
    one.critical_path = path_.chain(job.ended_by);
    result.jobs.push_back(std::move(one));
  }
  const size_t num_buckets = graph_->categories.size() + kFirstCategoryBucket;
  result.num_buckets = static_cast<int32_t>(num_buckets);
  result.breakdown_ps.assign(graph_->devices.size() * num_buckets, 0);
  for (size_t full = 0; full < graph_->devices.size(); ++full) {
    const auto d = static_cast<size_t>(folding_.class_of_device[full]);
    const std::vector<SimTime>& ends = jobs_[graph_->devices[full].job].ends;
    const size_t window = ends.size() - 2;
    int64_t* const row = &result.breakdown_ps[full * num_buckets];
    if (window < breakdown_.size() && !breakdown_[window].empty()) {
      std::copy_n(&breakdown_[window][d * num_buckets], num_buckets, row);
    }
    // What the device spent after its last task, waiting for the others to end the iteration, is bubble.
    int64_t accounted = 0;
    for (size_t b = 0; b < num_buckets; ++b) accounted += row[b];
    const int64_t length = (ends[window + 1] - ends[window]).ps();
    ROSTAM_CHECK(accounted <= length,
                 "device " << full << " accounts for " << accounted << " ps of an iteration of " << length << " ps");
    row[kBubbleBucket] += length - accounted;
    result.device_end_ps.push_back(devices_[d].streams.empty() ? 0 : last_end(static_cast<int32_t>(d)).ps());
  }
  for (size_t j = 0; j < jobs_.size(); ++j) {
    const size_t last = jobs_[j].ends.size() - 2;
    for (size_t c = 0; c < graph_->categories.size(); ++c) {
      const Traffic traffic = last < traffic_.size() ? traffic_[last][j * graph_->categories.size() + c] : Traffic{};
      result.sent_bytes.push_back(traffic.sent_bytes);
      result.received_bytes.push_back(traffic.received_bytes);
      result.num_messages.push_back(traffic.num_messages);
    }
  }
  for (const int32_t link : folding_.class_of_link) {
    const bool has_before = !link_bytes_before_.empty();
    result.link_bytes.push_back(link_bytes_now_[link] - (has_before ? link_bytes_before_[link] : 0));
    result.link_busy_s.push_back(link_busy_now_[link] - (has_before ? link_busy_before_[link] : 0));
  }
  result.timeline = expand_timeline();
  for (JobResult& job : result.jobs) {
    for (PathNode& node : job.critical_path) {
      if (!node.is_join) node.device = folding_.representative[node.device];
    }
  }
  result.checks = {"bytes sent = bytes received", "collective bytes = closed form",
                   "routes join the ends of their messages",
                   "links of every accelerator carry what it sends, receives and forwards"};
  if (network::engine_traits(options_.fidelity).checks_capacity) result.checks.emplace_back("no link above capacity");
  result.num_simulated_devices = static_cast<int32_t>(devices_.size());
  result.num_events = queue_.num_events();
  result.num_solves = network_->stats().num_solves;
  return result;
}

// Every recorded device gets the entries of the simulated one that stands for it.
std::vector<TimelineEntry> Session::expand_timeline() const {
  std::vector<TimelineEntry> entries;
  for (const TimelineEntry& entry : timeline_) {
    for (const int32_t device : options_.timeline_devices) {
      if (folding_.class_of_device[device] != entry.device) continue;
      entries.push_back(entry);
      entries.back().device = device;
    }
  }
  return entries;
}

SimTime Session::last_end(int32_t d) const {
  SimTime end;
  for (const Stream& stream : devices_[d].streams) end = std::max(end, stream.free_since);
  return end;
}

}  // namespace rostam::runtime
