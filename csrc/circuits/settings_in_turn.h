// Settings of a ring for one demand after another, each from the one before: what a controller does in a run, without
// the run.
#pragma once

#include <cstdint>
#include <vector>

#include "circuits/planner.h"

namespace rostam::circuits {

struct TurnOptions {
  uint64_t seed = 0;
  bool keeps_idle = true;  // circuits that a setting leaves alone stay, and those that change are counted
  bool is_listed = false;  // return settings
};

struct SettingsInTurn {
  std::vector<int64_t> num_changed;  // circuits that were not there before, the first time all; if counted
  std::vector<Setting> planned;      // for each demand, if listed
  std::vector<Setting> kept;         // the same and circuits of before that it leaves alone, if these stay
};

// num_bytes: of each pair, for each demand.
SettingsInTurn settings_in_turn(const PairList& pairs, const Ring& ring,
                                const std::vector<std::vector<double>>& num_bytes, const TurnOptions& options);

}  // namespace rostam::circuits
