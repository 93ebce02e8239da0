// How many wavelengths every pair of a ring should get: whole numbers, before any wavelength is named.
#pragma once

#include <cstdint>
#include <vector>

#include "circuits/demand.h"
#include "circuits/ring_paths.h"

namespace rostam::circuits {

// Whether there are wavelengths for one a pair on every segment, out of and into every accelerator.
bool can_all_have_one(const Demand& demand, const Ring& ring, const std::vector<RingPath>& paths);

// The least counts that reach the largest minimum of count / bytes, with at least one wavelength a pair, at most W on
// every segment of a fibre, and at most W out of and into every accelerator. Exact: least counts of a ratio found by
// bisection grow one by one at the slowest pair, which visits every further ratio until that pair finds no room;
// `seed` orders pairs that are equally slow.
// Throws: ConfigError naming the segment or accelerator where one wavelength a pair is too much.
// Cost: O(P log P) for P pairs, and a small number of wavelengths given one by one.
std::vector<int32_t> count_wavelengths(const Demand& demand, const Ring& ring, const std::vector<RingPath>& paths,
                                       uint64_t seed);

}  // namespace rostam::circuits
