// Names of a ring's wavelengths: they are alike, so that a setting may have any of them change places.
#pragma once

#include <cstdint>
#include <vector>

#include "circuits/bits.h"

namespace rostam::circuits {

// Rows of bits, num_words_of(W) words one after another, ascending by pair.
struct WavelengthsOfPairs {
  std::vector<int32_t> pair;      // of each row
  const std::vector<Word>& now;   // wavelengths that it is to have on a fibre
  const std::vector<Word>& held;  // and those that it has there
};

// The name of each wavelength: out of all of them that under which most of its circuits are held, those with most to
// gain first. Cost: O(W^2), and about 400,000 meetings of a pair's wavelengths at most.
std::vector<int32_t> best_names(int32_t num_wavelengths, const WavelengthsOfPairs& rows);

// Gives the wavelengths in rows of bits their names.
void rename(int32_t num_wavelengths, const std::vector<int32_t>& name, std::vector<Word>& rows);

}  // namespace rostam::circuits
