#include "workload/task_graph.h"

#include <algorithm>

namespace rostam::workload {

namespace {

void check_task(const TaskGraph& graph, const Template& body, size_t index) {
  const Task& task = body.tasks[index];
  for (const int32_t dep : task.deps) {
    if (dep < 0 || dep >= static_cast<int32_t>(index)) {
      ROSTAM_THROW(ConfigError, "task " << index << " depends on task " << dep << "; dependencies must come earlier");
    }
  }
  if (task.bytes < 0 || task.duration < SimTime::zero()) {
    ROSTAM_THROW(ConfigError,
                 "task " << index << " has " << task.bytes << " bytes and " << task.duration.ps() << " ps");
  }
  if (task.kind == TaskKind::kCompute) return;
  const bool has_schedule = task.schedule >= 0 && task.schedule < static_cast<int32_t>(graph.schedules.size());
  if (task.slot < 0 || task.category < 0 || task.category >= static_cast<int16_t>(graph.categories.size()) ||
      (task.kind == TaskKind::kCollective && !has_schedule)) {
    ROSTAM_THROW(ConfigError, "task " << index << " names slot " << task.slot << ", category " << task.category
                                      << ", schedule " << task.schedule << ", one of which does not exist");
  }
}

void derive(Template& body) {
  const size_t n = body.tasks.size();
  size_t num_streams = 1;
  for (const Task& task : body.tasks) num_streams = std::max(num_streams, static_cast<size_t>(task.slot + 2));
  body.stream_tasks.assign(num_streams, {});
  body.dependents.assign(n, {});
  body.num_deps.assign(n, 0);
  for (size_t t = 0; t < n; ++t) {
    const Task& task = body.tasks[t];
    const auto index = static_cast<int32_t>(t);
    // A recv waits for its message and holds no stream.
    if (task.kind != TaskKind::kRecv) body.stream_tasks[task.slot + 1].push_back(index);
    for (const int32_t dep : task.deps) {
      // Order on one stream is kept by the stream itself (MODEL B7: launch is hidden there).
      const Task& before = body.tasks[dep];
      if (before.slot == task.slot && before.kind != TaskKind::kRecv) continue;
      body.dependents[dep].push_back(index);
      ++body.num_deps[t];
    }
    if (task.kind == TaskKind::kRecv) ++body.num_deps[t];
  }
}

// What a program needs a slot to be bound to.
struct SlotUse {
  std::vector<int32_t> schedules;
  bool has_sends = false;
};

std::vector<SlotUse> slot_uses(const TaskGraph& graph, const Program& program) {
  std::vector<int32_t> used;
  for (const ProgramEntry& entry : program.entries) used.push_back(entry.template_id);
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  std::vector<SlotUse> uses(program.num_slots);
  for (const int32_t id : used) {
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

}  // namespace

void TaskGraph::check_open() const {
  if (is_frozen) throw ConfigError("the task graph is frozen; nothing can be added to it any more");
}

int64_t TaskGraph::chunk_bytes(const Task& task) const {
  const int64_t chunks = schedules[task.schedule]->shape().num_chunks;
  return chunks > 0 ? (task.bytes + chunks - 1) / chunks : 0;
}

void TaskGraph::freeze() {
  for (Template& body : templates) {
    for (size_t t = 0; t < body.tasks.size(); ++t) check_task(*this, body, t);
    derive(body);
  }
  std::vector<std::vector<SlotUse>> uses;
  for (Program& program : programs) {
    program.num_slots = 0;
    for (const ProgramEntry& entry : program.entries) {
      if (entry.template_id < 0 || entry.template_id >= static_cast<int32_t>(templates.size())) {
        ROSTAM_THROW(ConfigError, "a program names template " << entry.template_id << " of " << templates.size());
      }
      const auto num_streams = static_cast<int32_t>(templates[entry.template_id].stream_tasks.size());
      program.num_slots = std::max(program.num_slots, num_streams - 1);
    }
    uses.push_back(slot_uses(*this, program));
  }
  for (size_t d = 0; d < devices.size(); ++d) {
    const Device& device = devices[d];
    if (device.program < 0 || device.program >= static_cast<int32_t>(programs.size()) || device.job < 0 ||
        device.job >= num_jobs || !(device.slowdown > 0)) {
      ROSTAM_THROW(ConfigError, "device " << d << ": program " << device.program << ", job " << device.job
                                          << ", slowdown " << device.slowdown);
    }
    if (static_cast<int32_t>(device.slots.size()) < programs[device.program].num_slots) {
      ROSTAM_THROW(ConfigError, "device " << d << " binds " << device.slots.size() << " slots, its program uses "
                                          << programs[device.program].num_slots);
    }
    const std::vector<SlotUse>& needed = uses[device.program];
    for (size_t slot = 0; slot < needed.size(); ++slot)
      check_binding(*this, static_cast<int32_t>(d), slot, needed[slot]);
  }
  is_frozen = true;
}

}  // namespace rostam::workload
