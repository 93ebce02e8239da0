#include "circuits/planner.h"

#include <algorithm>
#include <limits>

namespace rostam::circuits {

double slowest_ratio(const std::vector<double>& num_bytes, const std::vector<int32_t>& counts) {
  double slowest = std::numeric_limits<double>::infinity();
  for (size_t p = 0; p < num_bytes.size(); ++p) {
    if (num_bytes[p] > 0) slowest = std::min(slowest, counts[p] / num_bytes[p]);
  }
  return slowest;
}

double busiest_end(const PairList& pairs, const std::vector<double>& num_bytes) {
  std::vector<double> sent(static_cast<size_t>(pairs.num_accelerators), 0), received(sent);
  for (size_t p = 0; p < num_bytes.size(); ++p) {
    sent[pairs.src[p]] += num_bytes[p];
    received[pairs.dst[p]] += num_bytes[p];
  }
  double most = 0;
  for (const auto* side : {&sent, &received}) {
    for (const double bytes : *side) most = std::max(most, bytes);
  }
  return most;
}

}  // namespace rostam::circuits
