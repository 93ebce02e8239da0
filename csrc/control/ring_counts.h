// How many wavelengths every pair of a ring should get: whole numbers, before any wavelength is named.
#pragma once

#include <cstdint>
#include <vector>

#include "control/demand.h"
#include "control/ring_paths.h"

namespace rostam::control {

// The largest minimum of count / bytes with at least one wavelength a pair, at most W on every segment of a fibre,
// and at most W out of and into every accelerator; then what is left goes to the slowest pair that can take one,
// `seed` ordering pairs that are equally slow. Exact: counts are the least ones of a ratio found by bisection, and
// then grow one by one at the slowest pair, which visits every further ratio until that pair finds no room.
// Throws: ConfigError naming the segment or accelerator where one wavelength a pair is too much.
// Cost: O(P log P + wavelengths given one by one x reach) for P pairs.
std::vector<int32_t> count_wavelengths(const Demand& demand, const Ring& ring, const std::vector<RingPath>& paths,
                                       uint64_t seed);

}  // namespace rostam::control
