#include "circuits/wavelength_table.h"

#include <algorithm>

#include "sim/errors.h"

namespace rostam::circuits {

WavelengthTable::WavelengthTable(const Demand& demand, const Ring& ring, const std::vector<RingPath>& paths)
    : demand_(demand),
      paths_(paths),
      n_(static_cast<size_t>(ring.num_accelerators)),
      reach_(static_cast<size_t>(ring.reach)),
      num_wavelengths_(static_cast<size_t>(ring.num_wavelengths)),
      num_words_((num_wavelengths_ + kWordBits - 1) / kWordBits),
      used_(4 * n_ * num_words_, 0),
      holder_(2 * n_ * num_wavelengths_) {}

template <typename Visit>
void WavelengthTable::visit_rows(int32_t pair, Visit visit) const {
  visit(driver_row(pair));
  visit(receiver_row(pair));
  const RingPath& path = paths_[static_cast<size_t>(pair)];
  for (int32_t p = path.start; p < path.end; ++p) visit(segment_row(path.fibre, p));
}

void WavelengthTable::give(int32_t pair, int32_t wavelength) {
  const size_t w = static_cast<size_t>(wavelength);
  give_all(pair, w / kWordBits, Word{1} << (w % kWordBits));
}

void WavelengthTable::give_all(int32_t pair, size_t word, Word wavelengths) {
  visit_rows(pair, [&](size_t row) {
    Word& used = used_[row * num_words_ + word];
    ROSTAM_CHECK(!(used & wavelengths), "pair " << pair << " is given a wavelength where it is taken");
    used |= wavelengths;
  });
  int32_t* const drives = &holder_[(driver_row(pair) - 2 * n_) * num_wavelengths_ + word * kWordBits];
  int32_t* const receives = &holder_[(receiver_row(pair) - 2 * n_) * num_wavelengths_ + word * kWordBits];
  for (Word left = wavelengths; left != 0; left &= left - 1) drives[lowest(left)] = receives[lowest(left)] = pair;
}

void WavelengthTable::take_back(int32_t pair, int32_t wavelength) {
  const size_t w = static_cast<size_t>(wavelength);
  const Word bit = Word{1} << (w % kWordBits);
  visit_rows(pair, [&](size_t row) { used_[row * num_words_ + w / kWordBits] &= ~bit; });
}

int32_t WavelengthTable::first_free(int32_t pair) const {
  for (size_t word = 0; word < num_words_; ++word) {
    const Word free = free_in(pair, word);
    if (free != 0) return static_cast<int32_t>(word * kWordBits) + lowest(free);
  }
  return kNobody;
}

int32_t WavelengthTable::give_free(int32_t pair, int32_t count) {
  int32_t given = 0;
  for (size_t word = 0; word < num_words_ && given < count; ++word) {
    Word chosen = 0;
    for (Word free = free_in(pair, word); free != 0 && given < count; free &= free - 1, ++given) {
      chosen |= free & (~free + 1);
    }
    if (chosen != 0) give_all(pair, word, chosen);
  }
  return given;
}

WavelengthTable::Word WavelengthTable::free_in(int32_t pair, size_t word) const {
  Word used = 0;
  visit_rows(pair, [&](size_t row) { used |= used_[row * num_words_ + word]; });
  const size_t end = (word + 1) * kWordBits;
  if (end > num_wavelengths_) used |= ~Word{0} << (kWordBits - (end - num_wavelengths_));
  return ~used;
}

int32_t WavelengthTable::lowest(Word bits) {
  int32_t position = 0;
  for (int32_t half = kWordBits / 2; half > 0; half /= 2) {
    if (bits << (static_cast<int32_t>(kWordBits) - half) != 0) continue;
    bits >>= half;
    position += half;
  }
  return position;
}

// The pair whose circuit crosses a segment: its driver lies at most `reach` places before.
int32_t WavelengthTable::holder_on(int32_t fibre, int32_t place, size_t wavelength) const {
  const size_t at = static_cast<size_t>(place) % n_;
  for (size_t back = 0; back < reach_; ++back) {
    const size_t start = (at + n_ * (back / n_ + 1) - back) % n_;
    const size_t driver =
        static_cast<size_t>(accelerator_at(static_cast<int32_t>(start), fibre, static_cast<int32_t>(n_)));
    if (!is_used(2 * n_ + driver, wavelength)) continue;
    const int32_t pair = holder_[driver * num_wavelengths_ + wavelength];
    const RingPath& path = paths_[static_cast<size_t>(pair)];
    if (path.fibre == fibre && static_cast<size_t>(path.num_hops()) > back) return pair;
  }
  ROSTAM_THROW(InternalError, "nobody drives wavelength " << wavelength << " on segment " << at);
}

void WavelengthTable::holders(int32_t pair, int32_t wavelength, size_t limit, std::vector<int32_t>& found) const {
  found.clear();
  const size_t w = static_cast<size_t>(wavelength);
  const auto add = [&](int32_t other) {
    if (std::find(found.begin(), found.end(), other) == found.end()) found.push_back(other);
  };
  for (const size_t row : {driver_row(pair), receiver_row(pair)}) {
    if (is_used(row, w)) add(holder_[(row - 2 * n_) * num_wavelengths_ + w]);
  }
  const RingPath& path = paths_[static_cast<size_t>(pair)];
  for (int32_t p = path.start; p < path.end && found.size() <= limit; ++p) {
    if (is_used(segment_row(path.fibre, p), w)) add(holder_on(path.fibre, p, w));
  }
}

}  // namespace rostam::circuits
