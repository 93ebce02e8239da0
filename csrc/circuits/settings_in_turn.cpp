#include "circuits/settings_in_turn.h"

#include <utility>

#include "circuits/planner_around.h"
#include "sim/interrupt.h"

namespace rostam::circuits {

SettingsInTurn settings_in_turn(const PairList& pairs, const Ring& ring,
                                const std::vector<std::vector<double>>& num_bytes, const TurnOptions& options) {
  const auto make = [&](const std::vector<int32_t>&, const std::vector<int32_t>&) {
    return make_ring_planner(pairs, ring, options.seed);
  };
  const PlannerAround planner(pairs, make_ring_paths(ring), make);
  SettingsInTurn found;
  Setting before;
  for (const std::vector<double>& demand : num_bytes) {
    poll_interrupt();
    Setting planned = planner.plan(demand, before);
    Setting kept = planned;
    if (options.keeps_idle) {
      PlannerAround::Change made = planner.change(planned, before);
      found.num_changed.push_back(made.added.size());
      kept = std::move(made.now);
    }
    if (options.is_listed) {
      found.planned.push_back(std::move(planned));
      found.kept.push_back(kept);
    }
    before = std::move(kept);
  }
  return found;
}

}  // namespace rostam::circuits
