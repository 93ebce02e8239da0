// up_down routing: spray over the shortest up*/down* walks of a breadth-first tree (fabric/up_down.h); free of deadlock
// with one virtual channel on any fabric, whatever has failed, and nothing that is connected is cut apart by it.
#include "fabric/up_down.h"

#include <utility>

#include "routing/registry.h"
#include "routing/spray.h"

namespace rostam::routing {

std::unique_ptr<RoutePolicy> make_up_down_policy(std::shared_ptr<const fabric::Fabric> fabric,
                                                 const PolicyOptions& options) {
  std::shared_ptr<const fabric::PathRule> rule = fabric::search_up_down(*fabric);
  return make_spray_paths(std::move(fabric), options.message_overhead, std::move(rule));
}

}  // namespace rostam::routing
