#include "workload/task_graph.h"

#include <cmath>
#include <tuple>

#include "sim/checked.h"

namespace rostam::workload {

int64_t Protocol::wire_bytes(int64_t bytes) const {
  if (wire_overhead == 1) return bytes;
  return static_cast<int64_t>(std::ceil(static_cast<double>(bytes) * wire_overhead));
}

bool Task::operator==(const Task& other) const {
  const auto values = [](const Task& task) {
    return std::tie(task.kind, task.slot, task.stream, task.order, task.category, task.schedule, task.channel,
                    task.bytes, task.protocol, task.duration, task.variation, task.kernels, task.issues, task.taken_ppm,
                    task.is_awaited_by_host, task.is_mark, task.origin, task.deps);
  };
  return values(*this) == values(other);
}

void TaskGraph::check_open() const {
  if (is_frozen) throw ConfigError("the task graph is frozen; nothing can be added to it any more");
}

std::vector<int32_t> TaskGraph::region_members(const SlotBinding& binding, int32_t region) const {
  const collectives::Region& one = regions[static_cast<size_t>(region)];
  const std::vector<int32_t>& group = groups[static_cast<size_t>(binding.group)];
  std::vector<int32_t> members;
  members.reserve(static_cast<size_t>(one.size));
  for (int32_t i = 0; i < one.size; ++i) members.push_back(group[static_cast<size_t>(one.member(binding.rank, i))]);
  return members;
}

int64_t TaskGraph::chunk_bytes(const Task& task) const {
  const int64_t chunks = schedules[task.schedule]->shape().num_chunks;
  return chunks > 0 ? divide_up(task.bytes, chunks) : 0;
}

}  // namespace rostam::workload
