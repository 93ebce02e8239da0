// turns routing: spray over the shortest walks that the fabric's own turn model allows, on its virtual channels:
// dimension order, north-last boards, up and down in trees. Where a fabric states none, up*/down*. After failures pairs
// that the model leaves without a walk take up*/down* ones, on a virtual channel of their own, the escape channel: no
// packet changes between it and the model's, so that neither set of channels has a circle and both together have none.
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
  const fabric::Failures& failed = fabric->failures();
  const bool is_broken = !failed.switches.empty() || !failed.cables.empty() || !failed.accelerators.empty();
  if (rule != nullptr && is_broken) {
    rule = fabric::make_rule_with_detours(std::move(rule), fabric::search_up_down(*fabric));
  } else if (rule == nullptr) {
    rule = fabric::search_up_down(*fabric);
    note = "fabric " + fabric->name() + " states no turn model: routing turns takes the paths of up_down there";
  }
  return make_spray_paths(std::move(fabric), options.message_overhead, std::move(rule), std::move(note));
}

}  // namespace rostam::routing
