#include "workload/task_graph.h"

#include "sim/checked.h"

namespace rostam::workload {

void TaskGraph::check_open() const {
  if (is_frozen) throw ConfigError("the task graph is frozen; nothing can be added to it any more");
}

int64_t TaskGraph::chunk_bytes(const Task& task) const {
  const int64_t chunks = schedules[task.schedule]->shape().num_chunks;
  return chunks > 0 ? divide_up(task.bytes, chunks) : 0;
}

}  // namespace rostam::workload
