// WavelengthTable: which pair holds which wavelength where; the bookkeeping of a ring's assignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "circuits/bits.h"
#include "circuits/demand.h"
#include "circuits/ring_paths.h"

namespace rostam::circuits {

// Where light of a path is, as rows: segments of fibre 0 by place, of fibre 1, drivers, receivers. Segments are
// neighbours in a table, or, where the path goes past place 0, are so twice.
class WavelengthRows {
 public:
  WavelengthRows(const RingPath& path, int32_t src, int32_t dst, int32_t n);

  int32_t driver() const { return driver_; }
  int32_t receiver() const { return receiver_; }
  template <typename Visit>
  void visit(Visit see) const {
    see(driver_);
    see(receiver_);
    for (int32_t row = first_; row < end_; ++row) see(row);
    for (int32_t row = again_; row < again_end_; ++row) see(row);
  }

  // rows: a word of bits of each. What is set in any of the path's, and setting some bits in all of them.
  Word any_of(const Word* rows) const {
    Word found = 0;
    visit([&](int32_t row) { found |= rows[row]; });
    return found;
  }
  void set(Word* rows, Word some) const {
    visit([&](int32_t row) { rows[row] |= some; });
  }

 private:
  int32_t driver_, receiver_, first_, end_, again_, again_end_;
};

std::vector<WavelengthRows> rows_of(const Demand& demand, const Ring& ring, const std::vector<RingPath>& paths);

// Bits say which wavelengths are in use on every segment of a fibre, by every driver and by every receiver, and which
// each pair has. An accelerator has at most 2 x reach pairs in which it drives, which are asked for the one that does.
class WavelengthTable {
 public:
  static constexpr int32_t kNobody = -1;

  // rows: of each pair. They, and the paths, must outlive the table.
  WavelengthTable(const Ring& ring, const std::vector<RingPath>& paths, const std::vector<WavelengthRows>& rows);

  // Some of a word's wavelengths; returns how many. REQUIRES: they are free for `pair`.
  int32_t give_word(int32_t pair, size_t word, Word some);

  // REQUIRES: `wavelength` is free for `pair`, or is taken back from the pair that holds it.
  void give(int32_t pair, int32_t wavelength);
  void take_back(int32_t pair, int32_t wavelength);

  // Lowest wavelength that is free along the pair's path and at both ends, or kNobody.
  int32_t first_free(int32_t pair) const;

  size_t num_words() const { return num_words_; }
  // Of all pairs, one after another: the wavelengths that each has.
  std::vector<Word> take_words() { return std::move(own_); }

  // Gives `pair` up to `count` free wavelengths, the lowest first or the highest; returns how many it found.
  int32_t give_free(int32_t pair, int32_t count, bool from_top);

  // The same of some that are free for it.
  int32_t give_all_of(int32_t pair, int32_t count, bool from_top, const Word* some);

  // The same for first those among some, then the lowest ones: where nothing is taken back this may go on where it
  // stopped. steps: how many words of either kind have none left, 2 x num_words() at the end; from num_words() on
  // `some` is not looked at.
  int32_t give_free_from(int32_t pair, int32_t count, bool from_top, const Word* some, size_t& steps);

  // Pairs that keep `pair` from using a wavelength, each once; stops beyond `limit` of them.
  // Cost: O(hops + reach^2 for every one of them).
  void holders(int32_t pair, int32_t wavelength, size_t limit, std::vector<int32_t>& found);

 private:
  Word free_in(const WavelengthRows& rows, size_t word) const { return ~rows.any_of(&used_[word * num_rows_]); }
  bool is_used(int32_t row, int32_t wavelength) const {
    const auto word = static_cast<size_t>(wavelength / kWordBits);
    return (used_[word * num_rows_ + static_cast<size_t>(row)] & bit_of(wavelength)) != 0;
  }
  bool has(size_t pair, int32_t wavelength) const {
    return (own_[pair * num_words_ + static_cast<size_t>(wavelength / kWordBits)] & bit_of(wavelength)) != 0;
  }
  // The pair that uses a wavelength at the row of a driver or receiver. REQUIRES: is_used(row, wavelength).
  int32_t holder_at(int32_t row, int32_t wavelength) const;
  // num_covered: segments of its path from `place` on.
  int32_t holder_on(int32_t fibre, int32_t place, int32_t wavelength, int32_t& num_covered) const;

  const std::vector<RingPath>& paths_;
  int32_t n_;
  int32_t reach_;
  size_t num_words_;
  size_t num_rows_;
  const std::vector<WavelengthRows>& rows_;     // of each pair
  std::vector<Word> used_;                      // of each word, of each row: a path's are neighbours
  std::vector<Word> own_;                       // of each pair, of each word
  std::vector<std::vector<int32_t>> pairs_at_;  // of each driver, then of each receiver; none before they are asked for
};

}  // namespace rostam::circuits
