#include "control/wavelength_table.h"

#include <algorithm>

#include "sim/errors.h"

namespace rostam::control {

WavelengthTable::WavelengthTable(const Demand& demand, const Ring& ring, const std::vector<RingPath>& paths)
    : demand_(demand),
      paths_(paths),
      n_(ring.num_accelerators),
      num_wavelengths_(ring.num_wavelengths),
      num_words_(static_cast<size_t>((num_wavelengths_ + kWordBits - 1) / kWordBits)),
      num_rows_(4 * static_cast<size_t>(n_)) {
  used_.assign(num_rows_ * num_words_, 0);
  holder_.resize(num_rows_ * static_cast<size_t>(num_wavelengths_));
}

size_t WavelengthTable::segment_row(int32_t fibre, int32_t place) const {
  return static_cast<size_t>(fibre * n_ + (place < n_ ? place : place - n_));
}

size_t WavelengthTable::driver_row(int32_t pair) const {
  return static_cast<size_t>(2 * n_ + demand_.src[static_cast<size_t>(pair)]);
}

size_t WavelengthTable::receiver_row(int32_t pair) const {
  return static_cast<size_t>(3 * n_ + demand_.dst[static_cast<size_t>(pair)]);
}

template <typename Visit>
void WavelengthTable::visit_rows(int32_t pair, Visit visit) const {
  visit(driver_row(pair));
  visit(receiver_row(pair));
  const RingPath& path = paths_[static_cast<size_t>(pair)];
  for (int32_t p = path.start; p < path.end; ++p) visit(segment_row(path.fibre, p));
}

void WavelengthTable::give(int32_t pair, int32_t wavelength) {
  const size_t word = static_cast<size_t>(wavelength / kWordBits);
  const Word bit = Word{1} << (wavelength % kWordBits);
  visit_rows(pair, [&](size_t row) {
    Word& used = used_[row * num_words_ + word];
    ROSTAM_CHECK(!(used & bit), "wavelength " << wavelength << " is given to pair " << pair << " where it is taken");
    used |= bit;
    holder_[static_cast<size_t>(wavelength) * num_rows_ + row] = pair;
  });
}

void WavelengthTable::take_back(int32_t pair, int32_t wavelength) {
  const size_t word = static_cast<size_t>(wavelength / kWordBits);
  const Word bit = Word{1} << (wavelength % kWordBits);
  visit_rows(pair, [&](size_t row) { used_[row * num_words_ + word] &= ~bit; });
}

int32_t WavelengthTable::first_free(int32_t pair) const {
  for (size_t word = 0; word < num_words_; ++word) {
    const Word free = free_in(pair, word);
    if (free != 0) return lowest(free) + static_cast<int32_t>(word) * kWordBits;
  }
  return kNobody;
}

int32_t WavelengthTable::give_free(int32_t pair, int32_t count) {
  int32_t given = 0;
  for (size_t word = 0; word < num_words_ && given < count; ++word) {
    for (Word free = free_in(pair, word); free != 0 && given < count; free &= free - 1, ++given) {
      give(pair, lowest(free) + static_cast<int32_t>(word) * kWordBits);
    }
  }
  return given;
}

WavelengthTable::Word WavelengthTable::free_in(int32_t pair, size_t word) const {
  Word used = 0;
  visit_rows(pair, [&](size_t row) { used |= used_[row * num_words_ + word]; });
  const int32_t num_beyond = static_cast<int32_t>(word + 1) * kWordBits - num_wavelengths_;
  if (num_beyond > 0) used |= ~Word{0} << (kWordBits - num_beyond);
  return ~used;
}

int32_t WavelengthTable::lowest(Word bits) {
  int32_t position = 0;
  for (int32_t half = kWordBits / 2; half > 0; half /= 2) {
    if (bits << (kWordBits - half) != 0) continue;
    bits >>= half;
    position += half;
  }
  return position;
}

int32_t WavelengthTable::driven(int32_t accelerator, int32_t wavelength) const {
  const size_t row = static_cast<size_t>(2 * n_ + accelerator);
  const Word word = used_[row * num_words_ + static_cast<size_t>(wavelength / kWordBits)];
  if (!(word >> (wavelength % kWordBits) & 1)) return kNobody;
  return holder_[static_cast<size_t>(wavelength) * num_rows_ + row];
}

void WavelengthTable::holders(int32_t pair, int32_t wavelength, size_t limit, std::vector<int32_t>& found) const {
  found.clear();
  const size_t word = static_cast<size_t>(wavelength / kWordBits);
  const Word bit = Word{1} << (wavelength % kWordBits);
  visit_rows(pair, [&](size_t row) {
    if (found.size() > limit || !(used_[row * num_words_ + word] & bit)) return;
    const int32_t other = holder_[static_cast<size_t>(wavelength) * num_rows_ + row];
    if (std::find(found.begin(), found.end(), other) == found.end()) found.push_back(other);
  });
}

}  // namespace rostam::control
