// WavelengthTable: which pair holds which wavelength where; the bookkeeping of a ring's assignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "circuits/demand.h"
#include "circuits/ring_paths.h"

namespace rostam::circuits {

// Bits say which wavelengths are in use on every segment of a fibre, by every driver and by every receiver; only
// drivers and receivers know for which pair.
class WavelengthTable {
 public:
  static constexpr int32_t kNobody = -1;

  WavelengthTable(const Demand& demand, const Ring& ring, const std::vector<RingPath>& paths);

  // REQUIRES: `wavelength` is free for `pair`, or is taken back from the pair that holds it.
  void give(int32_t pair, int32_t wavelength);
  void take_back(int32_t pair, int32_t wavelength);

  // Lowest wavelength that is free along the pair's path and at both ends, or kNobody.
  int32_t first_free(int32_t pair) const;

  // Wavelengths as bits, 64 a word.
  using Word = uint64_t;
  static constexpr size_t kWordBits = 64;
  size_t num_words() const { return num_words_; }

  // Gives `pair` up to `count` free wavelengths, the lowest first or the highest; returns how many it found.
  // among: words of the only ones that it may have, null for any.
  int32_t give_free(int32_t pair, int32_t count, bool from_top = false, const Word* among = nullptr);

  // The same for the lowest ones from a word on, which becomes the one where it stopped: where nothing is taken back,
  // none is free before.
  int32_t give_free_from(int32_t pair, int32_t count, size_t& word);

  // Calls visit(wavelength, pair) for every wavelength that an accelerator drives, ascending.
  template <typename Visit>
  void visit_driven(int32_t accelerator, Visit visit) const {
    const size_t row = static_cast<size_t>(accelerator);
    for (size_t word = 0; word < num_words_; ++word) {
      for (Word used = used_[(2 * n_ + row) * num_words_ + word]; used != 0; used &= used - 1) {
        const size_t wavelength = word * kWordBits + static_cast<size_t>(lowest(used));
        visit(static_cast<int32_t>(wavelength), holder_[row * num_wavelengths_ + wavelength]);
      }
    }
  }

  // Pairs that keep `pair` from using a wavelength, each once; stops beyond `limit` of them.
  // Cost: O(hops + reach for every one of them).
  void holders(int32_t pair, int32_t wavelength, size_t limit, std::vector<int32_t>& found) const;

 private:
  // Gives `pair` up to `count` of a word's free wavelengths.
  int32_t give_in(int32_t pair, int32_t count, size_t word, bool from_top, Word among);
  static int32_t lowest(Word bits);  // position of the lowest set bit; REQUIRES: bits != 0
  static Word highest(Word bits);    // the highest set bit alone; REQUIRES: bits != 0
  Word free_in(int32_t pair, size_t word) const;
  void give_all(int32_t pair, size_t word, Word wavelengths);
  bool is_used(size_t row, size_t wavelength) const {
    return used_[row * num_words_ + wavelength / kWordBits] >> (wavelength % kWordBits) & 1;
  }
  // num_covered: segments of its path from `place` on.
  int32_t holder_on(int32_t fibre, int32_t place, size_t wavelength, int32_t& num_covered) const;

  // Rows of bits: segments of fibre 0, segments of fibre 1, drivers, receivers.
  size_t driver_row(int32_t pair) const { return 2 * n_ + static_cast<size_t>(demand_.src[static_cast<size_t>(pair)]); }
  size_t receiver_row(int32_t pair) const {
    return 3 * n_ + static_cast<size_t>(demand_.dst[static_cast<size_t>(pair)]);
  }
  size_t segment_row(int32_t fibre, int32_t place) const {
    const size_t p = static_cast<size_t>(place);
    return static_cast<size_t>(fibre) * n_ + (p < n_ ? p : p - n_);
  }
  template <typename Visit>
  void visit_rows(int32_t pair, Visit visit) const;

  const Demand& demand_;
  const std::vector<RingPath>& paths_;
  size_t n_;
  size_t reach_;
  size_t num_wavelengths_;
  size_t num_words_;
  std::vector<Word> used_;
  std::vector<int32_t> holder_;  // (driver or N + receiver, wavelength) -> pair, valid where used
};

}  // namespace rostam::circuits
