#include "workload/freeze.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "sim/checked.h"
#include "sim/random.h"

namespace rostam::workload {

namespace {

constexpr int32_t kMaxSlots = 1 << 20;  // a device has one stream for each slot, and others

void check_task(const TaskGraph& graph, size_t number, size_t index) {
  const Task& task = graph.templates[number].tasks[index];
  const auto fail = [&](const std::string& what) {
    ROSTAM_THROW(ConfigError, "task " << index << " of template " << number << " " << what);
  };
  for (const int32_t dep : task.deps) {
    if (dep < 0 || dep >= static_cast<int32_t>(index)) {
      fail("depends on task " + std::to_string(dep) + "; dependencies must come earlier");
    }
  }
  if (task.kind > TaskKind::kRecv) fail("has kind " + std::to_string(int(task.kind)) + "; kinds are 0 to 3");
  if (task.bytes < 0 || task.duration < SimTime::zero()) {
    fail("has " + std::to_string(task.bytes) + " bytes and " + std::to_string(task.duration.ps()) +
         " ps; both must be >= 0");
  }
  for (const SimTime kernel : task.kernels) {
    if (kernel < SimTime::zero()) fail("has a kernel of " + std::to_string(kernel.ps()) + " ps; it must be >= 0");
  }
  for (const SimTime issue : task.issues) {
    if (issue < SimTime::zero()) fail("has a launch of " + std::to_string(issue.ps()) + " ps; it must be >= 0");
  }
  if (task.taken_ppm < 0 || task.taken_ppm > 1'000'000 || (task.taken_ppm > 0 && task.kind != TaskKind::kCollective)) {
    fail("takes " + std::to_string(task.taken_ppm) + " millionths of compute; a collective takes 0 to 1,000,000");
  }
  if (task.is_awaited_by_host && task.kind != TaskKind::kCompute && task.kind != TaskKind::kCollective) {
    fail("is awaited by its host, but only compute tasks and collectives may be");
  }
  if (task.stream < -1 || task.stream > kMaxSlots || task.order < -1 || task.order > kMaxSlots) {
    fail("is on stream " + std::to_string(task.stream) + " and in order " + std::to_string(task.order) +
         "; both are -1 to " + std::to_string(kMaxSlots));
  }
  if (task.is_mark && (task.kind != TaskKind::kCompute || !task.kernels.empty() || task.duration != SimTime::zero())) {
    fail("is a mark, but runs something");
  }
  if (task.kind == TaskKind::kCompute) {
    if (task.slot != -1) fail("computes on slot " + std::to_string(task.slot) + "; compute tasks have slot -1");
    return;
  }
  const bool has_schedule = task.schedule >= 0 && task.schedule < static_cast<int32_t>(graph.schedules.size());
  if (task.slot < 0 || task.slot >= kMaxSlots || task.category < 0 ||
      task.category >= static_cast<int32_t>(graph.categories.size()) ||
      (task.kind == TaskKind::kCollective && !has_schedule)) {
    fail("names slot " + std::to_string(task.slot) + ", category " + std::to_string(task.category) + ", schedule " +
         std::to_string(task.schedule) + ", one of which does not exist");
  }
  if (task.protocol < -1 || task.protocol >= static_cast<int32_t>(graph.protocols.size())) {
    fail("names protocol " + std::to_string(task.protocol) + " of " + std::to_string(graph.protocols.size()));
  }
  if (task.kind == TaskKind::kCollective) {
    // What a whole group sends must be countable.
    checked_multiply(graph.chunk_bytes(task), graph.schedules[task.schedule]->total_chunks_sent());
  }
}

void check_messages(const TaskGraph& graph, size_t number) {
  std::map<std::pair<TaskKind, int32_t>, std::vector<Progression>> uses;  // of (send or recv, channel)
  for (const ProgramBlock& block : graph.programs[number].blocks()) {
    for (const ProgramEntry& entry : block.entries) {
      for (const Task& task : graph.templates[entry.template_id].tasks) {
        if (task.kind != TaskKind::kSend && task.kind != TaskKind::kRecv) continue;
        uses[{task.kind, task.channel}].push_back({entry.microbatch + task.origin.ahead, entry.stride, block.count});
      }
    }
  }
  for (const auto& [use, progressions] : uses) {
    int64_t microbatch = 0;
    if (!find_common_value(progressions, microbatch)) continue;
    ROSTAM_THROW(ConfigError, "program " << number << (use.first == TaskKind::kSend ? " sends" : " receives")
                                         << " channel " << use.second << " of micro-batch " << microbatch
                                         << " twice in one iteration; give each message a channel of its own");
  }
}

// What a program needs a slot to be bound to.
struct SlotUse {
  std::vector<int32_t> schedules;
  bool has_sends = false;
};

std::vector<SlotUse> slot_uses(const TaskGraph& graph, size_t program) {
  std::vector<SlotUse> uses(graph.num_slots[program]);
  for (const int32_t id : graph.programs[program].templates()) {
    for (const Task& task : graph.templates[id].tasks) {
      if (task.kind == TaskKind::kSend) uses[task.slot].has_sends = true;
      if (task.kind == TaskKind::kCollective) uses[task.slot].schedules.push_back(task.schedule);
    }
  }
  for (SlotUse& use : uses) {
    std::sort(use.schedules.begin(), use.schedules.end());
    use.schedules.erase(std::unique(use.schedules.begin(), use.schedules.end()), use.schedules.end());
  }
  return uses;
}

void check_binding(const TaskGraph& graph, int32_t d, size_t slot, const SlotUse& use) {
  const SlotBinding& binding = graph.devices[d].slots[slot];
  const auto num_devices = static_cast<int32_t>(graph.devices.size());
  if (use.has_sends && (binding.peer < 0 || binding.peer >= num_devices || binding.peer == d)) {
    ROSTAM_THROW(ConfigError, "device " << d << " sends on slot " << slot << ", whose peer is " << binding.peer
                                        << "; it must be another of the " << num_devices << " devices");
  }
  if (use.schedules.empty()) return;
  const bool has_group = binding.group >= 0 && binding.group < static_cast<int32_t>(graph.groups.size());
  const std::vector<int32_t> none;
  const std::vector<int32_t>& members = has_group ? graph.groups[binding.group] : none;
  const auto num_members = static_cast<int32_t>(members.size());
  if (binding.rank < 0 || binding.rank >= num_members || members[binding.rank] != d) {
    ROSTAM_THROW(ConfigError, "device " << d << " uses slot " << slot << " for collectives, but is not rank "
                                        << binding.rank << " of a group " << binding.group);
  }
  for (const int32_t schedule : use.schedules) {
    const int32_t num_ranks = graph.schedules[schedule]->shape().num_ranks;
    if (num_ranks != num_members) {
      ROSTAM_THROW(ConfigError, "slot " << slot << " of device " << d << " is bound to group " << binding.group
                                        << " of " << num_members << " devices, but a schedule on it is for "
                                        << num_ranks << " ranks");
    }
  }
}

// Kinds, slots, categories, schedules, sizes, durations, and that dependencies come earlier.
void check_templates(const TaskGraph& graph) {
  for (size_t number = 0; number < graph.templates.size(); ++number) {
    for (size_t t = 0; t < graph.templates[number].tasks.size(); ++t) check_task(graph, number, t);
  }
}

// Templates exist, and no program sends or receives one channel and micro-batch twice.
void check_programs(const TaskGraph& graph) {
  const auto num_templates = static_cast<int32_t>(graph.templates.size());
  for (size_t number = 0; number < graph.programs.size(); ++number) {
    for (const int32_t id : graph.programs[number].templates()) {
      if (id >= 0 && id < num_templates) continue;
      ROSTAM_THROW(ConfigError, "program " << number << " names template " << id << " of " << num_templates);
    }
    check_messages(graph, number);
  }
}

// Members exist, each once in its group.
void check_groups(const TaskGraph& graph) {
  const auto num_devices = static_cast<int32_t>(graph.devices.size());
  std::vector<size_t> seen(graph.devices.size(), 0);  // number of the last group it was in, + 1
  for (size_t number = 0; number < graph.groups.size(); ++number) {
    for (const int32_t device : graph.groups[number]) {
      if (device < 0 || device >= num_devices || seen[device] == number + 1) {
        ROSTAM_THROW(ConfigError, "group " << number << " names device " << device
                                           << "; each of its devices must be in 0 to " << num_devices - 1
                                           << " and named once");
      }
      seen[device] = number + 1;
    }
  }
}

// Programs and jobs exist; every slot is bound to what the program uses it for.
void check_devices(const TaskGraph& graph) {
  std::vector<std::vector<SlotUse>> uses;
  for (size_t program = 0; program < graph.programs.size(); ++program) uses.push_back(slot_uses(graph, program));
  for (size_t d = 0; d < graph.devices.size(); ++d) {
    const Device& device = graph.devices[d];
    const bool has_program = device.program >= 0 && device.program < static_cast<int32_t>(graph.programs.size());
    const bool has_speed = device.slowdown > 0 && device.slowdown < std::numeric_limits<double>::infinity();
    if (!has_program || device.job < 0 || device.job >= graph.num_jobs || !has_speed || device.accelerator < 0 ||
        device.start < SimTime::zero()) {
      ROSTAM_THROW(ConfigError, "device " << d << " has accelerator " << device.accelerator << ", program "
                                          << device.program << " of " << graph.programs.size() << ", job " << device.job
                                          << " of " << graph.num_jobs << ", slowdown " << device.slowdown
                                          << " (finite, > 0), start " << device.start.ps() << " ps (>= 0)");
    }
    const std::vector<SlotUse>& needed = uses[device.program];
    if (device.slots.size() < needed.size()) {
      ROSTAM_THROW(ConfigError,
                   "device " << d << " binds " << device.slots.size() << " slots, its program uses " << needed.size());
    }
    for (size_t slot = 0; slot < needed.size(); ++slot) {
      check_binding(graph, static_cast<int32_t>(d), slot, needed[slot]);
    }
  }
}

// What a program puts on one of its slots or queues.
struct QueueUse {
  int32_t stream = -1, order = -1;           // of a slot's first collective or send
  bool is_stream = false, is_order = false;  // of a queue
};

// A slot's tasks go one behind the other: all are on one stream, or in one order. A queue is a stream or an order.
void check_streams(const TaskGraph& graph) {
  for (size_t number = 0; number < graph.programs.size(); ++number) {
    std::vector<QueueUse> slots(graph.num_slots[number]), queues(graph.num_streams[number]);
    const auto fail = [&](const char* what, int32_t which, const char* why) {
      ROSTAM_THROW(ConfigError, "program " << number << " has tasks on " << what << " " << which << " " << why);
    };
    for (const int32_t id : graph.programs[number].templates()) {
      for (const Task& task : graph.templates[id].tasks) {
        if (task.kind == TaskKind::kRecv) continue;
        queues[task.stream].is_stream = true;
        if (task.order >= 0) queues[task.order].is_order = true;
        if (task.slot < 0) continue;
        QueueUse& first = slots[task.slot];
        if (first.stream < 0) first = {task.stream, task.order};
        const bool is_ordered = first.order >= 0 ? task.order == first.order : task.stream == first.stream;
        if (!is_ordered) fail("slot", task.slot, "on several streams that are not in one order");
      }
    }
    for (size_t k = 0; k < queues.size(); ++k) {
      if (!queues[k].is_stream || !queues[k].is_order) continue;
      fail("stream", static_cast<int32_t>(k), "and in an order of that number; give the order one of its own");
    }
  }
}

void derive(Template& body) {
  const size_t n = body.tasks.size();
  size_t num_streams = 1;
  for (Task& task : body.tasks) {
    if (task.stream < 0) task.stream = task.slot + 1;
    num_streams =
        std::max(num_streams, static_cast<size_t>(std::max({task.slot + 2, task.stream + 1, task.order + 1})));
  }
  body.stream_tasks.assign(num_streams, {});
  body.has_compute = false;
  body.dependents.assign(n, {});
  body.num_deps.assign(n, 0);
  body.receives.clear();
  for (size_t t = 0; t < n; ++t) {
    const Task& task = body.tasks[t];
    const auto index = static_cast<int32_t>(t);
    // A recv waits for its message and holds no stream.
    if (task.kind != TaskKind::kRecv) body.stream_tasks[task.stream].push_back(index);
    if (task.order >= 0) body.stream_tasks[task.order].push_back(index);
    if (task.kind == TaskKind::kCompute) body.has_compute = true;
    for (const int32_t dep : task.deps) {
      // Order on one stream is kept by the stream itself (MODEL B7: launch is hidden there).
      const Task& before = body.tasks[dep];
      if (before.stream == task.stream && before.kind != TaskKind::kRecv) continue;
      body.dependents[dep].push_back(index);
      ++body.num_deps[t];
    }
    if (task.kind != TaskKind::kRecv) continue;
    ++body.num_deps[t];
    body.receives.emplace_back(task.channel, index);
  }
  std::sort(body.receives.begin(), body.receives.end());
}

// Templates with the same tasks have all that is derived from them in common too.
std::vector<int32_t> find_bodies(const std::vector<Template>& templates) {
  std::unordered_map<uint64_t, std::vector<int32_t>> first_ones;  // by a few things that are cheap to tell apart
  std::vector<int32_t> bodies;
  for (const Template& body : templates) {
    uint64_t key = body.tasks.size();
    for (const Task& task : body.tasks) {
      key = mix(key + static_cast<uint64_t>(task.bytes) + mix(static_cast<uint64_t>(task.duration.ps())));
    }
    std::vector<int32_t>& alike = first_ones[key];
    const auto same =
        std::find_if(alike.begin(), alike.end(), [&](int32_t one) { return templates[one].tasks == body.tasks; });
    if (same == alike.end()) {
      alike.push_back(static_cast<int32_t>(bodies.size()));
      bodies.push_back(alike.back());
    } else {
      bodies.push_back(*same);
    }
  }
  return bodies;
}

// The index of a region, added if it is new.
int32_t number_region(std::vector<collectives::Region>& regions, const collectives::Region& one) {
  const auto found = std::find(regions.begin(), regions.end(), one);
  const auto number = static_cast<int32_t>(found - regions.begin());
  if (found == regions.end()) regions.push_back(one);
  return number;
}

void find_regions(TaskGraph& graph) {
  graph.regions.clear();
  graph.region_of.clear();
  for (const auto& schedule : graph.schedules) {
    std::vector<int32_t>& numbers = graph.region_of.emplace_back();
    for (const collectives::Region& one : schedule->regions()) numbers.push_back(number_region(graph.regions, one));
  }
}

}  // namespace

void freeze(TaskGraph& graph) {
  graph.check_open();
  check_templates(graph);
  for (Template& body : graph.templates) derive(body);
  graph.body_of = find_bodies(graph.templates);
  check_programs(graph);
  graph.num_slots.clear();
  graph.num_streams.clear();
  for (const Program& program : graph.programs) {
    int32_t num_slots = 0, num_streams = 1;
    for (const int32_t id : program.templates()) {
      num_streams = std::max(num_streams, static_cast<int32_t>(graph.templates[id].stream_tasks.size()));
      for (const Task& task : graph.templates[id].tasks) num_slots = std::max(num_slots, task.slot + 1);
    }
    graph.num_slots.push_back(num_slots);
    graph.num_streams.push_back(num_streams);
  }
  check_streams(graph);
  check_groups(graph);
  check_devices(graph);
  find_regions(graph);
  graph.is_frozen = true;
}

}  // namespace rostam::workload
