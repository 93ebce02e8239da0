// Demand: how much every pair of accelerators sends in one iteration, as circuits are set for it.
#pragma once

#include <cstdint>
#include <vector>

namespace rostam::circuits {

// Pairs are unique and ordered by (src, dst), src != dst, bytes > 0 except where circuits may relay.
struct Demand {
  int32_t num_accelerators = 0;
  std::vector<int32_t> src;
  std::vector<int32_t> dst;
  std::vector<double> num_bytes;
};

}  // namespace rostam::circuits
