// The distinct steps of a schedule: the chunks from each sender to each receiver, and the number of equal steps.
// Example: a ring is one pattern of p messages with a count of 2 (p - 1).
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/schedule.h"

namespace rostam::collectives {

// Messages of one step, and the number of steps that send the same ones.
struct StepPattern {
  int64_t count = 0;
  std::vector<int32_t> src, dst, num_chunks;
};

// The messages of one step alone.
StepPattern step_pattern(const Schedule& schedule, int32_t step);

// Cost: O(messages of all steps); of one step where the schedule has fixed peers.
std::vector<StepPattern> distinct_steps(const Schedule& schedule);

}  // namespace rostam::collectives
