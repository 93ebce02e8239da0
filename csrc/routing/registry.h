// Registry of routings by name. A routing is one file that defines make_<name>_policy, and a line in
// builtin.inc.
// Example: make_policy("spray", fabric, {})->route(0, 5, {}).latency.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fabric/fabric.h"
#include "routing/policy.h"

namespace rostam::routing {

struct PolicyOptions {
  SimTime message_overhead;     // added to every route's latency (MODEL A3)
  bool enable_bundling = true;  // off: every link is an engine link of its own
  int32_t number = 0;           // of a routing that takes one (parse_routing); make_policy fills it in
};

#define ROSTAM_ROUTING(name, summary)                                                             \
  std::unique_ptr<RoutePolicy> make_##name##_policy(std::shared_ptr<const fabric::Fabric> fabric, \
                                                    const PolicyOptions& options);
#define ROSTAM_NUMBERED_ROUTING(name, what, usual, most, summary) ROSTAM_ROUTING(name, summary)
#include "routing/builtin.inc"
#undef ROSTAM_NUMBERED_ROUTING
#undef ROSTAM_ROUTING

// A routing as it is asked for: "spray", or "layers:8" with the number that it takes; "layers" has the usual one.
struct RoutingChoice {
  std::string name;
  int32_t number = 0;  // 0: it takes none
};

// Throws: ConfigError listing the registered names if it is none of them, or for a number that is not allowed.
RoutingChoice parse_routing(const std::string& text);

// A policy keeps the fabric alive and caches: one per session, not shared between threads. `name`: see parse_routing.
// Throws: as parse_routing.
std::unique_ptr<RoutePolicy> make_policy(const std::string& name, std::shared_ptr<const fabric::Fabric> fabric,
                                         const PolicyOptions& options);

std::vector<std::string> routing_names();

// One line for lists. Throws: as make_policy.
std::string routing_summary(const std::string& name);

}  // namespace rostam::routing
