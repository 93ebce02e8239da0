// SessionOptions: how a task graph is to be run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "network/network.h"
#include "sim/sim_time.h"
#include "sim/variation.h"

namespace rostam::runtime {

struct SessionOptions {
  SimTime launch_latency;
  SimTime host_launch;               // of a host for each kernel, collective and message; 0: it never limits
  SimTime min_collective_time;       // a collective's least duration; never per step
  double comm_compute_fraction = 0;  // of a device's compute that its running collectives take (MODEL B8)
  int32_t min_iterations = 2;
  int32_t max_iterations = 10;
  double steady_tolerance = 1e-3;
  bool enable_averages = true;  // of a job that is not steady: over several iterations; else of the last
  uint64_t seed = 0;
  Variation kernel_variation;             // every run of a kernel takes a factor of its own; nothing is folded then
  std::string fidelity = "flow";          // the engine
  double tolerance = 0;                   // of the engine, see Network::set_tolerance
  network::PacketOptions packets;         // of the engine, see Network::set_packets
  bool enable_folding = true;             // false: every device is simulated; so it is where the engine cannot fold
  bool enable_parking = false;            // messages without a route wait for one; else they are a NoRouteError
  bool enable_shortcuts = true;           // false: every message is; so it is where the engine is not exact when alone
  bool watch_stalls = false;              // find what iterations waited for standing messages
  std::vector<int32_t> timeline_devices;  // devices whose tasks are recorded
};

}  // namespace rostam::runtime
