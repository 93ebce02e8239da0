// Wavelengths of a ring's two fibres for one demand, set once (MODEL G22).
// Example: set_ring_wavelengths(demand, Ring{1024, 320, 16, {}}, 0).count[0].
//
// Objective: the largest minimum of wavelengths / bytes over the demanded pairs, each with one wavelength at least.
#pragma once

#include <cstdint>
#include <vector>

#include "circuits/demand.h"
#include "circuits/ring_paths.h"

namespace rostam::circuits {

// Entry i of the first arrays is pair i of the demand. Circuit j gives pair circuit_pair[j] (ascending) wavelength
// circuit_wavelength[j] on fibre circuit_fibre[j], the same on all segments of its path; a pair has no wavelength
// twice.
struct RingWavelengths {
  std::vector<int32_t> num_hops;  // of the longest way that it takes
  std::vector<int32_t> count;
  std::vector<int32_t> target;  // best whole counts the shorter way round if wavelengths needed no continuity
  std::vector<int32_t> circuit_pair;
  std::vector<int32_t> circuit_fibre;
  std::vector<int32_t> circuit_wavelength;
  bool keeps_names = false;  // the circuits that were held, and stay, have their wavelengths
};

// The paper's steps, each on whole wavelengths, so that its average of flows needs no rounding afterwards:
//   1. Every pair goes the shorter way round; per fibre a graph with its edge and dummy edges between neighbours, cut
//      at one place (RingFlow).
//   2. A unit flow of least cost: what it covers overlaps nowhere, so it is one wavelength. The paper's cost -1/TM
//      prefers short demands and leaves full segments idle (alone it ends 3 to 17% below the whole-number optimum on
//      figure 7's matrices of 1,024 accelerators); here idling costs the more the fuller a segment or port.
//   3. Serve the flow's pairs with one wavelength, subtract, repeat W times.
//   4. Scaling and rounding come first (count_wavelengths, which takes the seed), with the least of one a pair.
// Then what did not fit (circular arcs may need more wavelengths than their largest load) and what is left over goes
// to the slowest pairs, wherever a wavelength is free along a path and at both its ends.
// On rings so small that light survives both ways round (N <= 2 reach) that is where RingPacking begins, which knows
// both; pairs may then go either way, or both at once.
// Throws: ConfigError for pairs beyond reach, for more pairs than wavelengths on a segment or at an accelerator, and
// for a pair that is left without a wavelength. Cost: O(W (N + P)).
// Where may_leave_out circuits are set again and again, and time counts: on larger rings one sweep in the order of
// travel gives every pair its least count at once, beginning with the circuits that it holds or, where the slowest pair
// comes off short then, from none; flows follow only where it does again. Cost of a sweep: O(P hops W / 64). held:
// circuits of the demand's pairs, ascending. may_leave_out: where wavelengths do not suffice for all pairs the largest
// demands get theirs, others none. Source: SiP-ML 3.3 and A.2; own: the prices and the order of steps, see
// tests/circuits/test_ring_wavelengths.py.
RingWavelengths set_ring_wavelengths(const Demand& demand, const Ring& ring, uint64_t seed, bool may_leave_out = false,
                                     const std::vector<RingCircuit>& held = {});

}  // namespace rostam::circuits
