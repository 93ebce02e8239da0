#include "circuits/wavelength_table.h"

#include <algorithm>
#include <utility>

#include "sim/errors.h"

namespace rostam::circuits {

namespace {

using Word = WavelengthWord;

int32_t num_set(Word bits) {
  bits -= bits >> 1 & 0x5555555555555555;
  bits = (bits & 0x3333333333333333) + (bits >> 2 & 0x3333333333333333);
  bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0f;
  return static_cast<int32_t>(bits * 0x0101010101010101 >> 56);
}

// What is in use on some of the rows, of kWords... words from `word` on: the words stay in registers.
template <size_t... kWord>
void find_used(const WavelengthRows& rows, const Word* used, size_t num_words, Word* found,
               std::index_sequence<kWord...>) {
  Word taken[sizeof...(kWord)] = {};
  rows.visit([&](size_t row) {
    const Word* const of_row = used + row * num_words;
    ((taken[kWord] |= of_row[kWord]), ...);
  });
  ((found[kWord] = taken[kWord]), ...);
}

// All but the lowest `count`.
Word without_lowest(Word bits, int32_t count) {
  for (; count > 0; --count) bits &= bits - 1;
  return bits;
}

}  // namespace

WavelengthRows::WavelengthRows(const RingPath& path, int32_t src, int32_t dst, size_t n)
    : driver(2 * n + static_cast<size_t>(src)),
      receiver(3 * n + static_cast<size_t>(dst)),
      first(static_cast<size_t>(path.fibre) * n + static_cast<size_t>(path.start)),
      end(first + static_cast<size_t>(path.num_hops())),
      again(static_cast<size_t>(path.fibre) * n),
      again_end(again) {
  const size_t last = again + n;
  if (end <= last) return;
  again_end = again + (end - last);
  end = last;
}

WavelengthTable::WavelengthTable(const Demand& demand, const Ring& ring, const std::vector<RingPath>& paths)
    : paths_(paths),
      n_(static_cast<size_t>(ring.num_accelerators)),
      reach_(static_cast<size_t>(ring.reach)),
      num_wavelengths_(static_cast<size_t>(ring.num_wavelengths)),
      num_words_(num_wavelength_words(ring.num_wavelengths)),
      used_(4 * n_ * num_words_, 0),
      own_(paths.size() * num_words_, 0),
      free_(num_words_, 0) {
  rows_.reserve(paths.size());
  for (size_t i = 0; i < paths.size(); ++i) rows_.emplace_back(paths[i], demand.src[i], demand.dst[i], n_);
  // Beyond the last wavelength all is in use, by nobody.
  const size_t left = num_words_ * kWavelengthsPerWord - num_wavelengths_;
  if (left == 0) return;
  for (size_t row = 2 * n_; row < 3 * n_; ++row)
    used_[row * num_words_ + num_words_ - 1] = ~Word{0} << (kWavelengthsPerWord - left);
}

void WavelengthTable::find_free(int32_t pair) {
  const WavelengthRows& rows = rows_[static_cast<size_t>(pair)];
  for (size_t word = 0; word < num_words_;) {
    const Word* const used = used_.data() + word;
    Word* const found = free_.data() + word;
    const size_t left = num_words_ - word;
    if (left >= 8) {
      find_used(rows, used, num_words_, found, std::make_index_sequence<8>());
      word += 8;
    } else if (left >= 5) {
      find_used(rows, used, num_words_, found, std::make_index_sequence<5>());
      word += 5;
    } else if (left >= 2) {
      find_used(rows, used, num_words_, found, std::make_index_sequence<2>());
      word += 2;
    } else {
      find_used(rows, used, num_words_, found, std::make_index_sequence<1>());
      ++word;
    }
  }
  for (Word& word : free_) word = ~word;
}

void WavelengthTable::give(int32_t pair, int32_t wavelength) {
  const size_t w = static_cast<size_t>(wavelength);
  give_all(pair, w / kWavelengthsPerWord, Word{1} << (w % kWavelengthsPerWord));
}

void WavelengthTable::give_all(int32_t pair, size_t word, Word wavelengths) {
  Word both = 0;
  rows_[static_cast<size_t>(pair)].visit([&](size_t row) {
    Word& used = used_[row * num_words_ + word];
    both |= used & wavelengths;
    used |= wavelengths;
  });
  ROSTAM_CHECK(both == 0, "pair " << pair << " is given a wavelength where it is taken");
  own_[static_cast<size_t>(pair) * num_words_ + word] |= wavelengths;
}

void WavelengthTable::take_back(int32_t pair, int32_t wavelength) {
  const size_t word = static_cast<size_t>(wavelength) / kWavelengthsPerWord;
  const Word bit = Word{1} << (static_cast<size_t>(wavelength) % kWavelengthsPerWord);
  rows_[static_cast<size_t>(pair)].visit([&](size_t row) { used_[row * num_words_ + word] &= ~bit; });
  own_[static_cast<size_t>(pair) * num_words_ + word] &= ~bit;
}

int32_t WavelengthTable::first_free(int32_t pair) {
  find_free(pair);
  for (size_t word = 0; word < num_words_; ++word) {
    if (free_[word] != 0) return static_cast<int32_t>(word * kWavelengthsPerWord) + lowest_bit(free_[word]);
  }
  return kNobody;
}

int32_t WavelengthTable::give_in(int32_t pair, int32_t count, size_t word, bool from_top, Word among) {
  Word chosen = free_[word] & among;
  if (chosen == 0) return 0;
  int32_t given = num_set(chosen);
  if (given > count) {
    // The lowest ones are those without the higher ones, and the highest ones without the lower ones.
    chosen = from_top ? without_lowest(chosen, given - count) : chosen ^ without_lowest(chosen, count);
    given = count;
  }
  free_[word] ^= chosen;
  give_all(pair, word, chosen);
  return given;
}

int32_t WavelengthTable::give_found(int32_t pair, int32_t count, bool from_top) {
  int32_t given = 0;
  for (size_t k = 0; k < num_words_ && given < count; ++k)
    given += give_in(pair, count - given, from_top ? num_words_ - 1 - k : k, from_top, ~Word{0});
  return given;
}

int32_t WavelengthTable::give_free(int32_t pair, int32_t count, bool from_top) {
  if (count <= 0) return 0;
  find_free(pair);
  return give_found(pair, count, from_top);
}

int32_t WavelengthTable::give_all_of(int32_t pair, int32_t count, bool from_top, const Word* some) {
  std::copy_n(some, num_words_, free_.begin());
  return give_found(pair, count, from_top);
}

int32_t WavelengthTable::give_free_from(int32_t pair, int32_t count, bool from_top, size_t& word, const Word*& among,
                                        bool& may_find_more) {
  find_free(pair);
  int32_t given = 0;
  if (among != nullptr) {
    for (size_t k = 0; k < num_words_ && given < count; ++k) {
      const size_t at = from_top ? num_words_ - 1 - k : k;
      if ((free_[at] & among[at]) != 0) given += give_in(pair, count - given, at, from_top, among[at]);
    }
    if (given < count) among = nullptr;
  }
  while (given < count && word < num_words_) {
    given += give_in(pair, count - given, word, false, ~Word{0});
    if (given < count) ++word;
  }
  Word left = 0;
  for (const Word free : free_) left |= free;
  may_find_more = left != 0;
  return given;
}

int32_t WavelengthTable::holder_at(size_t row, size_t wavelength) const {
  for (const int32_t pair : pairs_at_[row - 2 * n_]) {
    if (has(static_cast<size_t>(pair), wavelength)) return pair;
  }
  ROSTAM_THROW(InternalError, "no pair has wavelength " << wavelength << " in use at row " << row);
}

// The pair whose circuit crosses a segment: its driver lies at most `reach` places before.
int32_t WavelengthTable::holder_on(int32_t fibre, int32_t place, size_t wavelength, int32_t& num_covered) const {
  const size_t at = static_cast<size_t>(place) % n_;
  for (size_t back = 0; back < reach_; ++back) {
    const size_t start = (at + n_ * (back / n_ + 1) - back) % n_;
    const size_t driver =
        static_cast<size_t>(accelerator_at(static_cast<int32_t>(start), fibre, static_cast<int32_t>(n_)));
    if (!is_used(2 * n_ + driver, wavelength)) continue;
    const int32_t pair = holder_at(2 * n_ + driver, wavelength);
    const RingPath& path = paths_[static_cast<size_t>(pair)];
    num_covered = path.num_hops() - static_cast<int32_t>(back);
    if (path.fibre == fibre && num_covered > 0) return pair;
  }
  ROSTAM_THROW(InternalError, "nobody drives wavelength " << wavelength << " on segment " << at);
}

void WavelengthTable::holders(int32_t pair, int32_t wavelength, size_t limit, std::vector<int32_t>& found) {
  if (pairs_at_.empty()) {
    pairs_at_.resize(2 * n_);
    for (size_t i = 0; i < rows_.size(); ++i) {
      for (const size_t row : {rows_[i].driver, rows_[i].receiver})
        pairs_at_[row - 2 * n_].push_back(static_cast<int32_t>(i));
    }
  }
  found.clear();
  const size_t w = static_cast<size_t>(wavelength);
  const auto add = [&](int32_t other) {
    if (std::find(found.begin(), found.end(), other) == found.end()) found.push_back(other);
  };
  const WavelengthRows& rows = rows_[static_cast<size_t>(pair)];
  for (const size_t row : {rows.driver, rows.receiver}) {
    if (is_used(row, w)) add(holder_at(row, w));
  }
  const RingPath& path = paths_[static_cast<size_t>(pair)];
  int32_t num_covered = 1;
  for (int32_t p = path.start; p < path.end && found.size() <= limit; p += num_covered) {
    num_covered = 1;
    const size_t row = static_cast<size_t>(path.fibre) * n_ + static_cast<size_t>(p) % n_;
    if (is_used(row, w)) add(holder_on(path.fibre, p, w, num_covered));
  }
}

}  // namespace rostam::circuits
