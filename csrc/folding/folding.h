// Folding (MODEL H24): devices, flows and links that must behave alike are simulated once.
//
// Colour refinement over the routed system: devices start with the colour of their program, speed and start; then
// flows take the colours of their ends and links, links those of their flows, devices those of their flows, until
// nothing splits. The result is an equitable partition: every flow of a class meets the same link classes with the
// same shares, every link of a class carries the same flows, so the quotient's max-min rates and event times are
// those of the whole. That is verified before it is used, and a slow device or a changed link splits its class.
#pragma once

#include <cstdint>
#include <vector>

#include "routing/route_table.h"
#include "workload/channels.h"
#include "workload/task_graph.h"

namespace rostam::folding {

using workload::TaskGraph;

struct Folding {
  bool is_folded = false;
  std::vector<int32_t> class_of_device;  // device -> simulated device
  std::vector<int32_t> representative;   // simulated device -> device
  std::vector<int64_t> multiplicity;     // simulated device -> devices it stands for
  std::vector<int32_t> class_of_link;    // engine link -> simulated link
  std::vector<double> capacities;        // simulated link -> bytes/s
  workload::ChannelTable channels;       // out of the simulated devices
  std::vector<routing::Route> routes;    // folded runs: of each channel, on simulated links
};

// A capacity change of one engine link during the run.
struct LinkEvent {
  SimTime time;
  int32_t link = 0;
  double bytes_per_s = 0;
};

// The identity: every device and link simulated.
Folding unfolded(const TaskGraph& graph, const routing::RouteTable& routes);

// The coarsest equitable partition, or the identity where routes are hashed, refinement does not pay, or the
// system is too large to refine. REQUIRES: graph frozen. Cost: rounds x (channels x links a route).
Folding fold(const TaskGraph& graph, const routing::RouteTable& routes, const std::vector<LinkEvent>& events);

}  // namespace rostam::folding
