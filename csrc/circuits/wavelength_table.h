// WavelengthTable: which pair holds which wavelength where; the bookkeeping of a ring's assignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "circuits/demand.h"
#include "circuits/ring_paths.h"

namespace rostam::circuits {

// Wavelengths as bits, 64 a word, the same number of words for each row of bits.
using WavelengthWord = uint64_t;
constexpr size_t kWavelengthsPerWord = 64;
inline size_t num_wavelength_words(int32_t num_wavelengths) {
  return (static_cast<size_t>(num_wavelengths) + kWavelengthsPerWord - 1) / kWavelengthsPerWord;
}
// The position of the lowest one that is set, by a de Bruijn sequence: its 64 windows of six bits are all different.
// REQUIRES: bits != 0.
inline int32_t lowest_bit(WavelengthWord bits) {
  constexpr WavelengthWord kSequence = 0x03f79d71b4cb0a89;
  static constexpr int8_t kPosition[kWavelengthsPerWord] = {
      0,  1,  48, 2,  57, 49, 28, 3,  61, 58, 50, 42, 38, 29, 17, 4,  62, 55, 59, 36, 53, 51,
      43, 22, 45, 39, 33, 30, 24, 18, 12, 5,  63, 47, 56, 27, 60, 41, 37, 16, 54, 35, 52, 21,
      44, 32, 23, 11, 46, 26, 40, 15, 34, 20, 31, 10, 25, 14, 19, 9,  13, 8,  7,  6};
  return kPosition[((bits & (~bits + 1)) * kSequence) >> 58];
}

// Calls visit(wavelength) for each that is set in a row of bits, ascending.
template <typename Visit>
void visit_wavelengths(const WavelengthWord* row, size_t num_words, Visit visit) {
  for (size_t word = 0; word < num_words; ++word) {
    for (WavelengthWord left = row[word]; left != 0; left &= left - 1)
      visit(static_cast<int32_t>(word * kWavelengthsPerWord) + lowest_bit(left));
  }
}

// Where light of a path is, as rows of bits: segments of fibre 0 by place, of fibre 1, drivers, receivers. Segments are
// neighbours in a table, or, where the path goes past place 0, are so twice.
struct WavelengthRows {
  WavelengthRows(const RingPath& path, int32_t src, int32_t dst, size_t n);
  template <typename Visit>
  void visit(Visit see) const {
    see(driver);
    see(receiver);
    for (size_t row = first; row < end; ++row) see(row);
    for (size_t row = again; row < again_end; ++row) see(row);
  }
  size_t driver, receiver, first, end, again, again_end;
};

// Bits say which wavelengths are in use on every segment of a fibre, by every driver and by every receiver, and which
// each pair has. An accelerator has at most 2 x reach pairs in which it drives, which are asked for the one that does.
class WavelengthTable {
 public:
  using Word = WavelengthWord;
  static constexpr int32_t kNobody = -1;

  WavelengthTable(const Demand& demand, const Ring& ring, const std::vector<RingPath>& paths);

  // REQUIRES: `wavelength` is free for `pair`, or is taken back from the pair that holds it.
  void give(int32_t pair, int32_t wavelength);
  void take_back(int32_t pair, int32_t wavelength);

  // Lowest wavelength that is free along the pair's path and at both ends, or kNobody.
  int32_t first_free(int32_t pair);

  size_t num_words() const { return num_words_; }
  // Of all pairs, one after another: the wavelengths that each has.
  const std::vector<Word>& words() const { return own_; }

  // Gives `pair` up to `count` free wavelengths, the lowest first or the highest; returns how many it found.
  int32_t give_free(int32_t pair, int32_t count, bool from_top);

  // The same of some that are free for it.
  int32_t give_all_of(int32_t pair, int32_t count, bool from_top, const Word* some);

  // The same for first those among some, if not null, then the lowest ones from a word on. Where nothing is taken back
  // this may go on where it stopped: no word before `word` has a free one, `among` is null once none of those is left,
  // and may_find_more says whether any is.
  int32_t give_free_from(int32_t pair, int32_t count, bool from_top, size_t& word, const Word*& among,
                         bool& may_find_more);

  // Pairs that keep `pair` from using a wavelength, each once; stops beyond `limit` of them.
  // Cost: O(hops + reach^2 for every one of them).
  void holders(int32_t pair, int32_t wavelength, size_t limit, std::vector<int32_t>& found);

 private:
  void find_free(int32_t pair);  // into free_
  int32_t give_found(int32_t pair, int32_t count, bool from_top);
  // Gives up to `count` of a word's free wavelengths among some, and takes them off free_.
  int32_t give_in(int32_t pair, int32_t count, size_t word, bool from_top, Word among);
  void give_all(int32_t pair, size_t word, Word wavelengths);
  static bool is_set(const std::vector<Word>& rows, size_t bit_of_row) {
    return rows[bit_of_row / kWavelengthsPerWord] >> (bit_of_row % kWavelengthsPerWord) & 1;
  }
  bool is_used(size_t row, size_t wavelength) const {
    return is_set(used_, row * num_words_ * kWavelengthsPerWord + wavelength);
  }
  bool has(size_t pair, size_t wavelength) const {
    return is_set(own_, pair * num_words_ * kWavelengthsPerWord + wavelength);
  }
  // The pair that uses a wavelength at the row of a driver or receiver. REQUIRES: is_used(row, wavelength).
  int32_t holder_at(size_t row, size_t wavelength) const;
  // num_covered: segments of its path from `place` on.
  int32_t holder_on(int32_t fibre, int32_t place, size_t wavelength, int32_t& num_covered) const;

  const std::vector<RingPath>& paths_;
  size_t n_;
  size_t reach_;
  size_t num_wavelengths_;
  size_t num_words_;
  std::vector<WavelengthRows> rows_;            // of each pair
  std::vector<Word> used_;                      // of each row
  std::vector<Word> own_;                       // of each pair
  std::vector<Word> free_;                      // of the pair that was looked at last
  std::vector<std::vector<int32_t>> pairs_at_;  // of each driver, then of each receiver; none before they are asked for
};

}  // namespace rostam::circuits
