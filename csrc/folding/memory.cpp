#include "folding/memory.h"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <string>

#include "sim/errors.h"
#include "sim/memory.h"
#include "workload/channels.h"

namespace rostam::folding {

using workload::TaskGraph;

namespace {

// Bytes of a message that is under way and its route, and of every link on it, as all-to-alls on trees (4 links) and
// tori (150 links a route) were measured to take; of a channel that waits for its turn.
constexpr double kMessageBytes = 600, kHopBytes = 64;
constexpr double kChannelBytes = 200, kChannelHopBytes = 16;
constexpr int64_t kFewChannels = 1 << 14;
constexpr int64_t kFewFlows = 1 << 10;
constexpr int kSamples = 32;

struct Load {
  int64_t under_way = 0;  // messages at once, of collectives in which each rank sends to all others
  int64_t channels = 0;   // of those and of collectives whose peers change from step to step
  int32_t num_ranks = 0;  // of the largest of them
  int32_t device = -1;    // one of it
  int32_t group = -1;
};

Load count(const TaskGraph& graph) {
  Load load;
  workload::ChannelLister lister(graph);
  for (size_t d = 0; d < graph.devices.size(); ++d) {
    const workload::Device& device = graph.devices[d];
    const auto& uses = lister.uses_of(device.program);
    for (size_t slot = 0; slot < uses.size(); ++slot) {
      for (const int32_t id : uses[slot]) {
        if (id < 0) continue;
        const collectives::Shape& shape = graph.schedules[id]->shape();
        if (shape.has_fixed_peers) continue;
        const bool is_one_step = shape.is_all_alike || (shape.num_steps == 1 && !shape.is_in_place);
        int64_t peers = std::min(is_one_step ? shape.num_ranks : shape.num_steps, shape.num_ranks) - 1;
        if (shape.max_peers > 0) peers = std::min<int64_t>(peers, shape.max_peers);
        load.channels += peers;
        if (is_one_step) load.under_way += peers;
        if (shape.num_ranks <= load.num_ranks) continue;
        load.num_ranks = shape.num_ranks;
        load.device = static_cast<int32_t>(d);
        load.group = device.slots[slot].group;
      }
    }
  }
  return load;
}

// Links of a route out of a device to members of its group, on average of some.
double mean_hops(const TaskGraph& graph, const routing::RouteTable& routes, const Load& load) {
  const std::vector<int32_t>& members = graph.groups[load.group];
  const int32_t from = graph.devices[load.device].accelerator;
  double sum = 0;
  int num = 0;
  for (int k = 1; k <= kSamples; ++k) {
    const size_t place = members.size() * static_cast<size_t>(k) / (kSamples + 1);
    const int32_t to = graph.devices[members[place]].accelerator;
    if (to == from) continue;
    try {
      const auto route = routes.route_of({from, to, static_cast<uint64_t>(k)});
      if (!route.has_value()) continue;
      sum += static_cast<double>(route->links.size());
      ++num;
    } catch (const NoRouteError&) {  // not all of a group need to talk to each other
    }
  }
  return num == 0 ? 0 : sum / num;
}

}  // namespace

void check_memory(const TaskGraph& graph, const routing::RouteTable& routes) {
  const Load load = count(graph);
  if (load.channels < kFewChannels) return;
  const double least = load.under_way * kMessageBytes + load.channels * kChannelBytes;
  const double hops = mean_hops(graph, routes, load);
  const double needed = least + hops * (load.under_way * kHopBytes + load.channels * kChannelHopBytes);
  std::ostringstream what;
  what << std::fixed << std::setprecision(1) << "collectives in which " << load.num_ranks
       << " ranks send to all others, with every message simulated (" << load.under_way << " at once, " << load.channels
       << " channels, " << hops << " links a route),";
  const std::string fewer_at_once =
      load.under_way > 0 ? "algorithm=balanced_shift (one message a rank at a time), " : "";
  require_memory(needed, what.str(),
                 "take fewer ranks, " + fewer_at_once +
                     "fidelity=analytic, or routing=spray on an intact fabric with symmetries (torus, full fat_tree, "
                     "hammingmesh, electrical_flat), which simulates one rank for all");
}

void check_memory(const std::vector<routing::Channel>& flows, const routing::RouteTable& routes) {
  if (flows.size() < static_cast<size_t>(kFewFlows)) return;
  double sum = 0;
  int num = 0;
  for (int k = 1; k <= kSamples; ++k) {
    try {
      const auto route = routes.route_of(flows[flows.size() * static_cast<size_t>(k) / (kSamples + 1)]);
      if (!route.has_value()) continue;
      sum += static_cast<double>(route->links.size());
      ++num;
    } catch (const NoRouteError&) {  // its start says so
    }
  }
  if (num == 0) return;
  const double hops = sum / num, count = static_cast<double>(flows.size());
  std::ostringstream what;
  what << std::fixed << std::setprecision(1) << flows.size() << " flows that start together (" << hops
       << " links a route)";
  require_memory(
      count * (kMessageBytes + hops * kHopBytes), what.str(),
      "take fewer flows, a smaller fabric, routing=hash (one path a flow), or rostam.link_loads, without time");
}

}  // namespace rostam::folding
