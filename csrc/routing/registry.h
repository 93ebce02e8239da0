// Registry of routings by name. A routing is one file that defines make_<name>_router and a line in builtin.inc.
// Example: make_router("spray", fabric, {})->route(0, 5, 0).latency.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fabric/fabric.h"
#include "routing/router.h"

namespace rostam::routing {

struct RouterOptions {
  SimTime message_overhead;     // added to every route's latency (MODEL A3)
  bool enable_bundling = true;  // off: every link is an engine link of its own
};

#define ROSTAM_ROUTING(name, summary)                                                        \
  std::unique_ptr<Router> make_##name##_router(std::shared_ptr<const fabric::Fabric> fabric, \
                                               const RouterOptions& options);
#include "routing/builtin.inc"
#undef ROSTAM_ROUTING

// A router keeps the fabric alive and caches: one per session, not shared between threads.
// Throws: ConfigError listing the registered names if `name` is not one of them.
std::unique_ptr<Router> make_router(const std::string& name, std::shared_ptr<const fabric::Fabric> fabric,
                                    const RouterOptions& options);

std::vector<std::string> routing_names();

// One line on a registered routing. Throws: as make_router.
std::string routing_summary(const std::string& name);

}  // namespace rostam::routing
