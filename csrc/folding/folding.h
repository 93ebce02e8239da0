// Folding (MODEL H24): devices, flows and links that must behave alike are simulated once.
//
// Refinement of the routed system (refinement.h): devices start apart by their program, speed and start; then flows are
// told apart by their ends and links, links and devices by their flows, until nothing splits. The result is an
// equitable partition: every flow of a class meets the same link classes with the same shares, every link of a class
// carries the same flows, so the quotient's max-min rates and event times are those of the whole. That is verified
// before it is used, and a slow device or a changed link splits its class.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "folding/footprint.h"
#include "folding/weighted_system.h"
#include "routing/route_table.h"
#include "workload/session_result.h"
#include "workload/task_graph.h"

namespace rostam::folding {

using workload::TaskGraph;

// Every device and link simulated. Throws: ConfigError if that takes more memory than there is (folding/memory.h).
WeightedSystem unfolded(std::shared_ptr<const TaskGraph> graph, const routing::RouteTable& routes);

// The orbits of the fabric's symmetries (folding/symmetry.h) where channels are many and there are any, else the
// coarsest equitable partition, or the identity where no two devices are alike, routes are hashed, planes differ, any
// link may change, or channels have more than 4 M links together. REQUIRES: graph frozen. Cost: channels x links a
// route x log of those.
WeightedSystem fold(std::shared_ptr<const TaskGraph> graph, const routing::RouteTable& routes,
                    const Footprint& footprint);

// The way back out: what a session of the system measured, as results of all devices and engine links. `recorded` are
// the devices whose timeline is wanted.
workload::SessionResult expand(const WeightedSystem& system, workload::SessionResult simulated,
                               const std::vector<int32_t>& recorded);

}  // namespace rostam::folding
