// JobProfile: what a job's iterations are like alone, as far as it has been seen: of iterations with the same messages
// the one that others slowed least. Example: if (profile.learn(phases, iteration)) use(profile.phases());
#pragma once

#include <map>
#include <vector>

#include "control/job_phases.h"

namespace rostam::control {

class JobProfile {
 public:
  // phases: of phases_of(), for this iteration. Returns whether it is now the one that is kept.
  bool learn(std::vector<JobPhase> phases, const Period& iteration);

  const std::vector<JobPhase>& phases() const { return kept_.phases; }

  // Model: the iteration that was slowed most took so much longer than the kept one takes alone, over what its phases
  // lost; 0 where kernels hid all of that. 1 until both are known.
  // Source: own; tests/control/test_iteration_shift.py.
  double weight() const;

 private:
  struct Seen {
    std::vector<JobPhase> phases;
    std::map<int32_t, double> busy_ps;  // of each link
    double length_ps = 0;               // of the iteration
    double alone_ps = 0;                // of its phases
    double lost_ps() const { return length_ps - alone_ps; }
  };
  static bool is_alike(const Seen& one, const Seen& other);

  Seen kept_;
  Seen slowest_;  // with the same messages
};

}  // namespace rostam::control
