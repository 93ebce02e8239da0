// freeze(): the door of task graphs, after which nothing may be added.
#pragma once

#include "workload/task_graph.h"

namespace rostam::workload {

// Checks every index, size and slot binding, and that no program sends or receives one message twice; then derives the
// tables of templates and programs. Throws: ConfigError naming the entry that is wrong.
void freeze(TaskGraph& graph);

}  // namespace rostam::workload
