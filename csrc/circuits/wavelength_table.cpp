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
  for (Word left = wavelengths; left != 0; left &= left - 1) {
    const int32_t at = lowest(left);
    drives[at] = receives[at] = pair;
  }
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

int32_t WavelengthTable::give_in(int32_t pair, int32_t count, size_t word, bool from_top, Word among) {
  Word chosen = 0;
  int32_t given = 0;
  for (Word free = free_in(pair, word) & among; free != 0 && given < count; ++given) {
    const Word one = from_top ? highest(free) : free & (~free + 1);
    chosen |= one;
    free ^= one;
  }
  if (chosen != 0) give_all(pair, word, chosen);
  return given;
}

int32_t WavelengthTable::give_free(int32_t pair, int32_t count, bool from_top, const Word* among) {
  int32_t given = 0;
  for (size_t k = 0; k < num_words_ && given < count; ++k) {
    const size_t word = from_top ? num_words_ - 1 - k : k;
    const Word allowed = among == nullptr ? ~Word{0} : among[word];
    if (allowed != 0) given += give_in(pair, count - given, word, from_top, allowed);
  }
  return given;
}

int32_t WavelengthTable::give_free_from(int32_t pair, int32_t count, size_t& word) {
  int32_t given = 0;
  while (true) {
    given += give_in(pair, count - given, word, false, ~Word{0});
    if (given == count || word + 1 == num_words_) return given;
    ++word;
  }
}

WavelengthTable::Word WavelengthTable::free_in(int32_t pair, size_t word) const {
  Word used = 0;
  visit_rows(pair, [&](size_t row) { used |= used_[row * num_words_ + word]; });
  const size_t end = (word + 1) * kWordBits;
  if (end > num_wavelengths_) used |= ~Word{0} << (kWordBits - (end - num_wavelengths_));
  return ~used;
}

// By a de Bruijn sequence: its 64 windows of six bits are all different.
int32_t WavelengthTable::lowest(Word bits) {
  constexpr Word kSequence = 0x03f79d71b4cb0a89;
  static constexpr int8_t kPosition[kWordBits] = {0,  1,  48, 2,  57, 49, 28, 3,  61, 58, 50, 42, 38, 29, 17, 4,
                                                  62, 55, 59, 36, 53, 51, 43, 22, 45, 39, 33, 30, 24, 18, 12, 5,
                                                  63, 47, 56, 27, 60, 41, 37, 16, 54, 35, 52, 21, 44, 32, 23, 11,
                                                  46, 26, 40, 15, 34, 20, 31, 10, 25, 14, 19, 9,  13, 8,  7,  6};
  return kPosition[((bits & (~bits + 1)) * kSequence) >> 58];
}

WavelengthTable::Word WavelengthTable::highest(Word bits) {
  for (size_t shift = 1; shift < kWordBits; shift *= 2) bits |= bits >> shift;
  return bits ^ (bits >> 1);
}

// The pair whose circuit crosses a segment: its driver lies at most `reach` places before.
int32_t WavelengthTable::holder_on(int32_t fibre, int32_t place, size_t wavelength, int32_t& num_covered) const {
  const size_t at = static_cast<size_t>(place) % n_;
  for (size_t back = 0; back < reach_; ++back) {
    const size_t start = (at + n_ * (back / n_ + 1) - back) % n_;
    const size_t driver =
        static_cast<size_t>(accelerator_at(static_cast<int32_t>(start), fibre, static_cast<int32_t>(n_)));
    if (!is_used(2 * n_ + driver, wavelength)) continue;
    const int32_t pair = holder_[driver * num_wavelengths_ + wavelength];
    const RingPath& path = paths_[static_cast<size_t>(pair)];
    num_covered = path.num_hops() - static_cast<int32_t>(back);
    if (path.fibre == fibre && num_covered > 0) return pair;
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
  int32_t num_covered = 1;
  for (int32_t p = path.start; p < path.end && found.size() <= limit; p += num_covered) {
    num_covered = 1;
    if (is_used(segment_row(path.fibre, p), w)) add(holder_on(path.fibre, p, w, num_covered));
  }
}

}  // namespace rostam::circuits
