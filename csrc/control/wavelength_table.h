// WavelengthTable: which pair holds which wavelength where; the bookkeeping of a ring's assignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "control/demand.h"
#include "control/ring_paths.h"

namespace rostam::control {

// Per segment of a fibre, per driving accelerator and per receiving accelerator a holder of every wavelength.
class WavelengthTable {
 public:
  static constexpr int32_t kNobody = -1;

  WavelengthTable(const Demand& demand, const Ring& ring, const std::vector<RingPath>& paths);

  // REQUIRES: is_free(pair, wavelength).
  void give(int32_t pair, int32_t wavelength);
  void take_back(int32_t pair, int32_t wavelength);

  // Lowest wavelength that is free along the pair's path and at both ends, or kNobody.
  int32_t first_free(int32_t pair) const;

  // Gives `pair` up to `count` free wavelengths, the lowest first; returns how many it found.
  int32_t give_free(int32_t pair, int32_t count);

  // The pair for which an accelerator drives a wavelength, or kNobody.
  int32_t driven(int32_t accelerator, int32_t wavelength) const;

  // Pairs that keep `pair` from using a wavelength, each once; stops beyond `limit` of them.
  void holders(int32_t pair, int32_t wavelength, size_t limit, std::vector<int32_t>& found) const;

 private:
  using Word = uint64_t;
  static constexpr int32_t kWordBits = 64;
  static int32_t lowest(Word bits);  // position of the lowest set bit; REQUIRES: bits != 0
  Word free_in(int32_t pair, size_t word) const;
  // Rows: segments of fibre 0, segments of fibre 1, drivers, receivers.
  size_t driver_row(int32_t pair) const;
  size_t receiver_row(int32_t pair) const;
  size_t segment_row(int32_t fibre, int32_t place) const;
  template <typename Visit>
  void visit_rows(int32_t pair, Visit visit) const;

  const Demand& demand_;
  const std::vector<RingPath>& paths_;
  int32_t n_;
  int32_t num_wavelengths_;
  size_t num_words_;
  size_t num_rows_;
  std::vector<Word> used_;       // (row, wavelength) bits
  std::vector<int32_t> holder_;  // (wavelength, row) -> pair, valid where used
};

}  // namespace rostam::control
