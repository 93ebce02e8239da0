// PairChunks: what one run of a schedule sends from rank to rank, summed over its steps.
// Example: pair_chunks(*make_schedule("all_reduce", "ring", 4, {})).num_chunks is 6, 6, 6, 6.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/schedule.h"

namespace rostam::collectives {

// One entry a pair of ranks that exchange anything, ordered by (src, dst).
struct PairChunks {
  std::vector<int32_t> src;
  std::vector<int32_t> dst;
  std::vector<int64_t> num_chunks;
};

// Cost: O(messages of the schedule). Throws: InternalError if they differ from the schedule's closed form.
PairChunks pair_chunks(const Schedule& schedule);

}  // namespace rostam::collectives
