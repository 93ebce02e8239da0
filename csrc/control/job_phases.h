// JobPhases: when in an iteration a job sends, and how much of each link it then takes, from the messages seen.
// Example: log.start(now, links); log.end(now); phases_of(log, {begin, end}, others, capacity).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "control/control_plane.h"

namespace rostam::control {

// A stretch in which a job has messages under way all the time, and the bytes that they put on links.
struct Burst {
  SimTime begin;
  SimTime end = SimTime::never();  // never(): not yet
  std::map<int32_t, double> bytes;
};

// The bursts of one job, in order.
class BurstLog {
 public:
  void start(SimTime now, const std::vector<LinkBytes>& links);
  void end(SimTime now);
  // Drops those that ended before.
  void forget(SimTime before);
  const std::vector<Burst>& bursts() const { return bursts_; }

 private:
  std::vector<Burst> bursts_;
  int32_t num_under_way_ = 0;
};

struct LinkLoad {
  int32_t link = 0;
  double share = 0;  // of what it can carry
};

// A part of an iteration: without messages, or with them and what they take of links at full speed.
struct JobPhase {
  double length_ps = 0;  // at full speed
  std::vector<LinkLoad> loads;
};

struct Period {
  SimTime begin, end;
};

// Units: [bytes/s]; 0 where it has failed.
using CapacityOf = std::function<double(int32_t)>;

// Model: bursts closer than 1/72 of the iteration are one, with an even load. Where bursts of others met one on a link
// that was full, it ran at the share that its link had for it, all in proportion to what they would take alone: at full
// speed it is as much shorter, yet no shorter than its busiest link needs.
// Source: Rajasekaran et al., Cassini (NSDI 2024), profiles of a job alone, in steps of 5 degrees of an iteration; what
// is known here is the run itself, so that they are own; tests/control/test_iteration_shift.py.
std::vector<JobPhase> phases_of(const BurstLog& own, const Period& iteration,
                                const std::vector<const BurstLog*>& others, const CapacityOf& capacity);

}  // namespace rostam::control
