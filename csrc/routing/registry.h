// Registry of routings by name. A routing is one file that defines make_<name>_policy, and a line in
// builtin.inc.
// Example: make_policy("spray", fabric, {})->route(0, 5, {}).latency.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fabric/fabric.h"
#include "routing/policy.h"

namespace rostam::routing {

struct PolicyOptions {
  SimTime message_overhead;     // added to every route's latency (MODEL A3)
  bool enable_bundling = true;  // off: every link is an engine link of its own
};

#define ROSTAM_ROUTING(name, summary)                                                             \
  std::unique_ptr<RoutePolicy> make_##name##_policy(std::shared_ptr<const fabric::Fabric> fabric, \
                                                    const PolicyOptions& options);
#include "routing/builtin.inc"
#undef ROSTAM_ROUTING

// A policy keeps the fabric alive and caches: one per session, not shared between threads.
// Throws: ConfigError listing the registered names if `name` is not one of them.
std::unique_ptr<RoutePolicy> make_policy(const std::string& name, std::shared_ptr<const fabric::Fabric> fabric,
                                         const PolicyOptions& options);

std::vector<std::string> routing_names();

// One line for lists. Throws: as make_policy.
std::string routing_summary(const std::string& name);

}  // namespace rostam::routing
