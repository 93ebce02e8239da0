#include "circuits/wavelength_table.h"

#include <algorithm>

#include "sim/errors.h"

namespace rostam::circuits {

namespace {

// Where there mostly are no more than `count`.
Word at_most(Word bits, int32_t count, bool from_top) {
  return num_set(bits) <= count ? bits : some_of(bits, count, from_top);
}

}  // namespace

WavelengthRows::WavelengthRows(const RingPath& path, int32_t src, int32_t dst, int32_t n)
    : driver_(2 * n + src),
      receiver_(3 * n + dst),
      first_(path.fibre * n + path.start),
      end_(first_ + path.num_hops()),
      again_(path.fibre * n),
      again_end_(again_) {
  const int32_t last = again_ + n;
  if (end_ <= last) return;
  again_end_ = again_ + (end_ - last);
  end_ = last;
}

std::vector<WavelengthRows> rows_of(const Demand& demand, const Ring& ring, const std::vector<RingPath>& paths) {
  std::vector<WavelengthRows> rows;
  rows.reserve(paths.size());
  for (size_t i = 0; i < paths.size(); ++i)
    rows.emplace_back(paths[i], demand.src[i], demand.dst[i], ring.num_accelerators);
  return rows;
}

WavelengthTable::WavelengthTable(const Ring& ring, const std::vector<RingPath>& paths,
                                 const std::vector<WavelengthRows>& rows)
    : paths_(paths),
      n_(ring.num_accelerators),
      reach_(ring.reach),
      num_words_(num_words_of(ring.num_wavelengths)),
      num_rows_(4 * static_cast<size_t>(n_)),
      rows_(rows),
      used_(num_rows_ * num_words_, 0),
      own_(paths.size() * num_words_, 0) {
  // Beyond the last wavelength all is in use, without an owner.
  if (ring.num_wavelengths % kWordBits == 0) return;
  const auto drivers = used_.end() - static_cast<std::ptrdiff_t>(num_rows_) + 2 * n_;
  std::fill(drivers, drivers + n_, ~(bit_of(ring.num_wavelengths) - 1));
}

int32_t WavelengthTable::give_word(int32_t pair, size_t word, Word some) {
  if (some == 0) return 0;
  rows_[static_cast<size_t>(pair)].set(&used_[word * num_rows_], some);
  own_[static_cast<size_t>(pair) * num_words_ + word] |= some;
  return num_set(some);
}

void WavelengthTable::give(int32_t pair, int32_t wavelength) {
  const auto word = static_cast<size_t>(wavelength / kWordBits);
  const Word bit = bit_of(wavelength);
  ROSTAM_CHECK((free_in(rows_[static_cast<size_t>(pair)], word) & bit) != 0,
               "pair " << pair << " is given wavelength " << wavelength << " where it is taken");
  give_word(pair, word, bit);
}

void WavelengthTable::take_back(int32_t pair, int32_t wavelength) {
  const auto word = static_cast<size_t>(wavelength / kWordBits);
  const Word bit = bit_of(wavelength);
  Word* const used = &used_[word * num_rows_];
  rows_[static_cast<size_t>(pair)].visit([&](int32_t row) { used[row] &= ~bit; });
  own_[static_cast<size_t>(pair) * num_words_ + word] &= ~bit;
}

int32_t WavelengthTable::first_free(int32_t pair) const {
  for (size_t word = 0; word < num_words_; ++word) {
    const Word free = free_in(rows_[static_cast<size_t>(pair)], word);
    if (free != 0) return static_cast<int32_t>(word) * kWordBits + lowest_bit(free);
  }
  return kNobody;
}

int32_t WavelengthTable::give_free(int32_t pair, int32_t count, bool from_top) {
  int32_t given = 0;
  for (size_t k = 0; k < num_words_ && given < count; ++k) {
    const size_t word = from_top ? num_words_ - 1 - k : k;
    const Word free = free_in(rows_[static_cast<size_t>(pair)], word);
    given += give_word(pair, word, at_most(free, count - given, from_top));
  }
  return given;
}

int32_t WavelengthTable::give_all_of(int32_t pair, int32_t count, bool from_top, const Word* some) {
  int32_t given = 0;
  for (size_t k = 0; k < num_words_ && given < count; ++k) {
    const size_t word = from_top ? num_words_ - 1 - k : k;
    given += give_word(pair, word, at_most(some[word], count - given, from_top));
  }
  return given;
}

int32_t WavelengthTable::give_free_from(int32_t pair, int32_t count, bool from_top, const Word* some, size_t& steps) {
  const WavelengthRows& rows = rows_[static_cast<size_t>(pair)];
  const Word* const own = &own_[static_cast<size_t>(pair) * num_words_];
  int32_t given = 0;
  for (; steps < num_words_; ++steps) {
    const size_t word = from_top ? num_words_ - 1 - steps : steps;
    const Word wanted = some[word] & ~own[word];
    if (wanted == 0) continue;
    const Word free = free_in(rows, word) & wanted;
    if (free == 0) continue;
    given += give_word(pair, word, some_of(free, count - given, from_top));
    if (given == count) return given;
  }
  for (; steps < 2 * num_words_; ++steps) {
    const size_t word = steps - num_words_;
    const Word free = free_in(rows, word);
    if (free == 0) continue;
    given += give_word(pair, word, some_of(free, count - given, false));
    if (given == count) break;
  }
  return given;
}

int32_t WavelengthTable::holder_at(int32_t row, int32_t wavelength) const {
  for (const int32_t pair : pairs_at_[static_cast<size_t>(row - 2 * n_)]) {
    if (has(static_cast<size_t>(pair), wavelength)) return pair;
  }
  ROSTAM_THROW(InternalError, "no pair has wavelength " << wavelength << " in use at row " << row);
}

// The pair whose circuit crosses a segment: its driver lies at most `reach` places before.
int32_t WavelengthTable::holder_on(int32_t fibre, int32_t place, int32_t wavelength, int32_t& num_covered) const {
  const int32_t at = place % n_;
  for (int32_t back = 0; back < reach_; ++back) {
    const int32_t start = (at + n_ * (back / n_ + 1) - back) % n_;
    const int32_t driver = accelerator_at(start, fibre, n_);
    if (!is_used(2 * n_ + driver, wavelength)) continue;
    const int32_t pair = holder_at(2 * n_ + driver, wavelength);
    const RingPath& path = paths_[static_cast<size_t>(pair)];
    num_covered = path.num_hops() - back;
    if (path.fibre == fibre && num_covered > 0) return pair;
  }
  ROSTAM_THROW(InternalError, "nobody drives wavelength " << wavelength << " on segment " << at);
}

void WavelengthTable::holders(int32_t pair, int32_t wavelength, size_t limit, std::vector<int32_t>& found) {
  if (pairs_at_.empty()) {
    pairs_at_.resize(2 * static_cast<size_t>(n_));
    for (size_t i = 0; i < rows_.size(); ++i) {
      for (const int32_t row : {rows_[i].driver(), rows_[i].receiver()})
        pairs_at_[static_cast<size_t>(row - 2 * n_)].push_back(static_cast<int32_t>(i));
    }
  }
  found.clear();
  const auto add = [&](int32_t other) {
    if (std::find(found.begin(), found.end(), other) == found.end()) found.push_back(other);
  };
  const WavelengthRows& rows = rows_[static_cast<size_t>(pair)];
  for (const int32_t row : {rows.driver(), rows.receiver()}) {
    if (is_used(row, wavelength)) add(holder_at(row, wavelength));
  }
  const RingPath& path = paths_[static_cast<size_t>(pair)];
  int32_t num_covered = 1;
  for (int32_t p = path.start; p < path.end && found.size() <= limit; p += num_covered) {
    num_covered = 1;
    const int32_t row = path.fibre * n_ + p % n_;
    if (is_used(row, wavelength)) add(holder_on(path.fibre, p, wavelength, num_covered));
  }
}

}  // namespace rostam::circuits
