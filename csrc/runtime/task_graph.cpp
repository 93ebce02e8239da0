#include "runtime/task_graph.h"

#include <algorithm>

namespace rostam::runtime {

namespace {

void check_task(const TaskGraph& graph, const Template& body, size_t index) {
  const Task& task = body.tasks[index];
  for (const int32_t dep : task.deps) {
    if (dep < 0 || dep >= static_cast<int32_t>(index)) {
      ROSTAM_THROW(ConfigError, "task " << index << " depends on task " << dep << "; dependencies must come earlier");
    }
  }
  if (task.bytes < 0 || task.duration < SimTime::zero()) {
    ROSTAM_THROW(ConfigError, "task " << index << " has " << task.bytes << " bytes and " << task.duration.ps() << " ps");
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

}  // namespace

int64_t TaskGraph::chunk_bytes(const Task& task) const {
  const int64_t chunks = schedules[task.schedule]->shape().num_chunks;
  return chunks > 0 ? (task.bytes + chunks - 1) / chunks : 0;
}

void TaskGraph::freeze() {
  for (Template& body : templates) {
    for (size_t t = 0; t < body.tasks.size(); ++t) check_task(*this, body, t);
    derive(body);
  }
  for (Program& program : programs) {
    program.num_slots = 0;
    for (const ProgramEntry& entry : program.entries) {
      if (entry.template_id < 0 || entry.template_id >= static_cast<int32_t>(templates.size())) {
        ROSTAM_THROW(ConfigError, "a program names template " << entry.template_id << " of " << templates.size());
      }
      const auto num_streams = static_cast<int32_t>(templates[entry.template_id].stream_tasks.size());
      program.num_slots = std::max(program.num_slots, num_streams - 1);
    }
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
  }
  is_frozen = true;
}

}  // namespace rostam::runtime
