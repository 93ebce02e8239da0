// WeightedSystem: what a session runs. Every simulated device stands for `weight` devices that behave alike, every
// simulated link for links that carry the same; an unfolded system is one in which everything stands for itself.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "network/link_table.h"
#include "routing/route.h"
#include "workload/channels.h"
#include "workload/task_graph.h"

namespace rostam::folding {

struct WeightedSystem {
  std::shared_ptr<const workload::TaskGraph> graph;
  bool is_folded = false;

  std::vector<workload::Device> devices;  // simulated; their peers and groups name devices of the graph
  std::vector<int64_t> weights;           // per simulated device
  network::LinkTable links;               // simulated
  workload::ChannelTable channels;        // out of the simulated devices
  std::vector<routing::Route> routes;     // folded systems: of each channel, on simulated links; else the table's

  // What stands for a device of the graph and for an engine link of the route table.
  std::vector<int32_t> device_stand_in;
  std::vector<int32_t> link_stand_in;
  std::vector<int32_t> original;  // per simulated device, the first device that it stands for

  // Whether a message from a simulated device to a device of the graph stays inside a server.
  bool is_inside_server(int32_t source, int32_t peer) const {
    return graph->is_inside_server(devices[static_cast<size_t>(source)].accelerator, accelerator_of(peer));
  }

  // Of a device of the graph. In an unfolded system a job may be restarted on other accelerators than the graph's.
  int32_t accelerator_of(int32_t device) const {
    return is_folded ? graph->devices[static_cast<size_t>(device)].accelerator
                     : devices[static_cast<size_t>(device)].accelerator;
  }
};

}  // namespace rostam::folding
