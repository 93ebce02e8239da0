// turns routing: spray over the shortest walks that the fabric's own turn model allows, on its virtual channels:
// dimension order, north-last boards, up and down in trees. Where a fabric states none, up*/down*.
#include <string>
#include <utility>

#include "fabric/up_down.h"
#include "routing/registry.h"
#include "routing/spray.h"

namespace rostam::routing {

std::unique_ptr<RoutePolicy> make_turns_policy(std::shared_ptr<const fabric::Fabric> fabric,
                                               const PolicyOptions& options) {
  std::shared_ptr<const fabric::PathRule> rule = fabric->turn_rule();
  std::string note;
  if (rule == nullptr) {
    rule = fabric::search_up_down(*fabric);
    note = "fabric " + fabric->name() + " states no turn model: routing turns takes the paths of up_down there";
  }
  return make_spray_paths(std::move(fabric), options.message_overhead, std::move(rule), std::move(note));
}

}  // namespace rostam::routing
