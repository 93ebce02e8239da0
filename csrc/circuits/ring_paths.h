// RingPaths: which way round the ring every demanded pair goes, and what that loads.
// Fibre 0 is clockwise (towards higher numbers), fibre 1 counter-clockwise. A path is given in steps of its fibre's
// travel: place p of fibre 0 is accelerator p, place p of fibre 1 is accelerator (N - p) mod N; segment p leads from
// place p to place p + 1. So both fibres look alike.
#pragma once

#include <cstdint>
#include <vector>

#include "circuits/demand.h"

namespace rostam::circuits {

constexpr int32_t kNumFibres = 2;

struct Ring {
  int32_t num_accelerators = 0;
  int32_t num_wavelengths = 0;        // W of each fibre
  int32_t reach = 0;                  // hops that light survives
  std::vector<int32_t> cut_segments;  // 2 i: clockwise i -> i+1; 2 i + 1: counter-clockwise i+1 -> i
};

// Covers segments start, ..., end - 1 (modulo N); end may exceed N.
struct RingPath {
  int32_t fibre = 0;
  int32_t start = 0;
  int32_t end = 0;
  int32_t num_hops() const { return end - start; }
};

// One wavelength of one pair, which it has on the whole way.
struct RingCircuit {
  int32_t pair = 0;
  int32_t fibre = 0;
  int32_t wavelength = 0;
};

inline int32_t place_of(int32_t accelerator, int32_t fibre, int32_t n) {
  return fibre == 0 ? accelerator : (n - accelerator) % n;
}

// The accelerators at the ends of segment `place` of a fibre, in the direction of travel.
inline int32_t accelerator_at(int32_t place, int32_t fibre, int32_t n) {
  return fibre == 0 ? place % n : (n - place % n) % n;
}

// The ways of each pair, clockwise first, that are within reach and not cut. Throws: as choose_paths, unless
// may_be_none.
std::vector<std::vector<RingPath>> open_ways(const Demand& demand, const Ring& ring, bool may_be_none = false);

// One path a pair: the shorter way round that is not cut; of equal ways the one that is loaded less (in bytes).
// Throws: ConfigError naming a pair that no way joins within reach.
std::vector<RingPath> choose_paths(const Demand& demand, const Ring& ring);

}  // namespace rostam::circuits
