// The routable fabric that circuits make of an optical one: a directed link for every connected pair of accelerators.
// Example: make_circuit_fabric("sip_ocs", 4, {{0, 1, 50e9, SimTime::from_ps(1000000)}}, CircuitRelay());
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fabric/fabric.h"

namespace rostam::fabric {

// All circuits from `src` to `dst` together; parallel circuits always share their load evenly.
struct CircuitLink {
  int32_t src = 0;
  int32_t dst = 0;
  double bandwidth_bytes_per_s = 0;
  SimTime latency;
};

// Whether accelerators pass on traffic of pairs that have no circuit, and what each one on the way adds.
struct CircuitRelay {
  bool is_enabled = false;
  SimTime latency;
};

// Without relays a pair is one link or has no route; with them routes take the fewest circuits.
// Throws: ConfigError for ends out of range or bandwidths not above zero.
std::shared_ptr<const Fabric> make_circuit_fabric(const std::string& name, int32_t num_accelerators,
                                                  const std::vector<CircuitLink>& circuits, const CircuitRelay& relay);

}  // namespace rostam::fabric
