// Memory that a system with every device simulated will take, looked at before it is taken.
#pragma once

#include <vector>

#include "routing/route_table.h"
#include "workload/task_graph.h"

namespace rostam::folding {

// Throws: ConfigError that says what memory is needed and available and what to do instead, where all messages that are
// under way at once, and the routes of all channels, would take more memory than is available.
// Cost: devices x slots + the routes of a few channels.
void check_memory(const workload::TaskGraph& graph, const routing::RouteTable& routes);

// The same of flows that are under way at once. Cost: the routes of a few.
void check_memory(const std::vector<routing::Channel>& flows, const routing::RouteTable& routes);

}  // namespace rostam::folding
