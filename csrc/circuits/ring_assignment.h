// OneWay: wavelengths of a ring's pairs where each pair goes one way round.
// Invariant: no wavelength twice on a segment of a fibre; each driven, and received, on one fibre at most.
#pragma once

#include <cstdint>
#include <vector>

#include "circuits/demand.h"
#include "circuits/ring_paths.h"
#include "circuits/wavelength_table.h"

namespace rostam::circuits {

// Entry i is of pair i of a demand; words: the wavelengths that each has, num_words_of() words one after
// another.
struct OneWay {
  std::vector<RingPath> paths;
  std::vector<int32_t> count;
  std::vector<int32_t> target;  // best whole counts if wavelengths needed no continuity
  std::vector<Word> words;
  bool keeps_names = false;  // what was held, and stays, has its wavelengths
};

struct OneWayOptions {
  uint64_t seed = 0;
  bool may_leave_out = false;  // pairs may be left without a wavelength, those with the smallest demands
  bool is_swift = false;       // set again and again: one sweep goes first, which mostly does
};

// held: words of what pairs have now, on the paths given, or empty. Steps, source and cost: set_ring_wavelengths.
// Throws: ConfigError for more pairs than wavelengths on a segment or at an accelerator, unless may_leave_out.
OneWay assign_one_way(const Demand& demand, const Ring& ring, std::vector<RingPath> paths, const OneWayOptions& options,
                      const std::vector<Word>& held);

// Throws: InternalError unless that is what it should be, by the paths and words alone.
void check_one_way(const Demand& demand, const Ring& ring, const OneWay& found);

}  // namespace rostam::circuits
