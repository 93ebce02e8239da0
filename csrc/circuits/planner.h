// CircuitPlanner: circuits for one demand after another between the same pairs; what can stay as it is stays.
// Example: make_ocs_planner({4, {0, 1}, {1, 0}}, OcsPorts{2})->plan({1e6, 0}, {}) gives pair 0 a circuit on each
// switch.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "circuits/ocs_circuits.h"
#include "circuits/ring_paths.h"
#include "circuits/setting.h"

namespace rostam::circuits {

// Unique pairs of accelerators, ordered by (src, dst).
struct PairList {
  int32_t num_accelerators = 0;
  std::vector<int32_t> src;
  std::vector<int32_t> dst;
  int32_t size() const { return static_cast<int32_t>(src.size()); }
};

class CircuitPlanner {
 public:
  virtual ~CircuitPlanner() = default;

  // num_bytes: what each pair has to send; 0 for none, and no circuit except for relays. Where ports or wavelengths do
  // not suffice for all pairs the largest demands get theirs, with relays so that the others have a chain of circuits
  // where that can be. held: circuits that are set now.
  virtual Setting plan(const std::vector<double>& num_bytes, const Setting& held) const = 0;
  // What no setting's slowest pair exceeds [circuits a byte]; infinite without bytes. Cost: O(pairs).
  virtual double most_ratio(const std::vector<double>& num_bytes) const = 0;
};

// The slowest pair's circuits a byte; infinite without bytes. counts: circuits of each pair.
double slowest_ratio(const std::vector<double>& num_bytes, const std::vector<int32_t>& counts);
// The largest sum of bytes that an accelerator sends, or receives.
double busiest_end(const PairList& pairs, const std::vector<double>& num_bytes);

// `pairs` holds the opposite of every pair where circuits are symmetric, and a ring round all accelerators that pairs
// name, in ascending order, where they relay.
std::unique_ptr<CircuitPlanner> make_ocs_planner(PairList pairs, const OcsPorts& ports);

// seed: orders pairs that are equally slow. can_relay: what a pair without a way of at most `reach` hops has to send
// counts for the fewest pairs that lead there, in equal parts, and where pairs are left without a way the ring round
// all accelerators that pairs name counts as much as the largest or, where that does not do, has a wavelength for each
// way round alone. REQUIRES: else every demanded pair has a way.
std::unique_ptr<CircuitPlanner> make_ring_planner(PairList pairs, const Ring& ring, uint64_t seed,
                                                  bool can_relay = false);

}  // namespace rostam::circuits
