// RelayPaths: the chains of others' circuits that serve pairs without a circuit.
// Example: with circuits 0 -> 1 and 1 -> 2, of pairs 0 and 2, RelayPaths(pairs, count).find(1) for the pair 0 -> 2 is
// {{{0, 1.0}, {2, 1.0}}, 2}.
#pragma once

#include <cstdint>
#include <vector>

#include "circuits/planner.h"

namespace rostam::circuits {

// `share` of a message goes over the circuits of `pair`.
struct RelayHop {
  int32_t pair = 0;
  double share = 1;
  bool operator==(const RelayHop& other) const { return pair == other.pair && share == other.share; }
};

struct Relay {
  std::vector<RelayHop> hops;  // from the source on; none where no chain leads to the destination
  int32_t num_circuits = 0;    // of each chain
};

// Model: the fewest circuits, and where several chains have as few equal shares at each hop, as routing=spray has them.
// Keeps references; finds pairs of one source after another fastest.
class RelayPaths {
 public:
  // count: circuits of each pair.
  RelayPaths(const PairList& pairs, const std::vector<int32_t>& count);

  bool reaches(int32_t pair);
  // Cost: O(pairs with circuits), once for each source; then the circuits on the way.
  Relay find(int32_t pair);

 private:
  void search_from(int32_t source);

  const PairList& pairs_;
  std::vector<std::vector<int32_t>> out_, in_;  // pairs with circuits
  int32_t source_ = -1;
  std::vector<int32_t> distance_;  // circuits from the source; -1 where none lead
  std::vector<int32_t> queue_;
  std::vector<uint8_t> is_on_way_;
  std::vector<double> held_;
};

// Whether every pair of these that wants bytes has circuits or a chain of them.
bool reaches_all(const PairList& pairs, const std::vector<double>& num_bytes, const Setting& setting);

// The pairs of a ring round all accelerators that pairs name, in ascending order, as far as they are among the pairs;
// `mirrored`: and back.
std::vector<int32_t> ring_pairs(const PairList& pairs, bool mirrored);

}  // namespace rostam::circuits
