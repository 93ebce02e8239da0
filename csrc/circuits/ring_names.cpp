#include "circuits/ring_names.h"

#include <algorithm>
#include <cstddef>

#include "sim/errors.h"

namespace rostam::circuits {

namespace {

constexpr int64_t kMaxMeetings = 400000;

int64_t num_set_in(const Word* row, size_t num_words) {
  int64_t count = 0;
  for (size_t word = 0; word < num_words; ++word) count += num_set(row[word]);
  return count;
}

// W x W: circuits on each wavelength whose pairs hold each on the same fibre. Of a pair that has k wavelengths, and
// keeps about as many, each meets k others: pairs are left out evenly where these were too many.
std::vector<int32_t> shared_circuits(int32_t num_wavelengths, const WavelengthsOfPairs& rows) {
  const size_t num_words = num_words_of(num_wavelengths);
  int64_t num_meetings = 0;
  for (size_t first = 0, end = 0; first < rows.pair.size(); first = end) {
    int64_t now = 0, held = 0;
    for (; end < rows.pair.size() && rows.pair[end] == rows.pair[first]; ++end) {
      now += num_set_in(&rows.now[end * num_words], num_words);
      held += num_set_in(&rows.held[end * num_words], num_words);
    }
    num_meetings += now * held;
  }
  const auto every = static_cast<int32_t>(1 + num_meetings / kMaxMeetings);
  const auto w = static_cast<size_t>(num_wavelengths);
  std::vector<int32_t> shared(w * w, 0);
  std::vector<int32_t> names(w);
  for (size_t r = 0; r < rows.pair.size(); ++r) {
    if (rows.pair[r] % every != 0) continue;
    size_t num_names = 0;
    visit_bits(&rows.held[r * num_words], num_words, [&](int32_t name) { names[num_names++] = name; });
    visit_bits(&rows.now[r * num_words], num_words, [&](int32_t wavelength) {
      int32_t* const of_wavelength = &shared[static_cast<size_t>(wavelength) * w];
      for (size_t k = 0; k < num_names; ++k) ++of_wavelength[names[k]];
    });
  }
  return shared;
}

}  // namespace

std::vector<int32_t> best_names(int32_t num_wavelengths, const WavelengthsOfPairs& rows) {
  const int32_t w = num_wavelengths;
  const std::vector<int32_t> shared = shared_circuits(w, rows);
  // Wavelengths and their names by the circuits kept, most first; as many by wavelength, then by name.
  const int32_t most = *std::max_element(shared.begin(), shared.end());
  std::vector<uint32_t> first(static_cast<size_t>(most) + 2, 0);
  for (const int32_t kept : shared) ++first[static_cast<size_t>(most - kept) + 1];
  for (size_t k = 1; k < first.size(); ++k) first[k] += first[k - 1];
  const size_t num_gains = first[static_cast<size_t>(most)];  // of one circuit at least
  struct Gain {
    uint16_t from, to;
  };
  ROSTAM_CHECK(w <= UINT16_MAX, w << " wavelengths have no names of 16 bits");
  std::vector<Gain> gains(shared.size());
  const int32_t* kept = shared.data();
  for (int32_t from = 0; from < w; ++from) {
    for (int32_t to = 0; to < w; ++to, ++kept)
      gains[first[static_cast<size_t>(most - *kept)]++] = {static_cast<uint16_t>(from), static_cast<uint16_t>(to)};
  }
  std::vector<int32_t> name(static_cast<size_t>(w), -1);
  std::vector<uint8_t> is_taken(static_cast<size_t>(w), 0);
  int32_t num_named = 0;
  for (size_t k = 0; k < num_gains && num_named < w; ++k) {
    const auto [from, to] = gains[k];
    if (name[from] >= 0 || is_taken[to]) continue;
    name[from] = to;
    is_taken[to] = 1;
    ++num_named;
  }
  int32_t next = 0;
  for (int32_t& one : name) {
    if (one >= 0) continue;
    while (is_taken[next]) ++next;
    one = next;
    is_taken[next] = 1;
  }
  return name;
}

void rename(int32_t num_wavelengths, const std::vector<int32_t>& name, std::vector<Word>& rows) {
  const size_t num_words = num_words_of(num_wavelengths);
  std::vector<Word> row(num_words);
  for (size_t first = 0; first < rows.size(); first += num_words) {
    std::copy_n(&rows[first], num_words, row.begin());
    Word* const named = &rows[first];
    std::fill_n(named, num_words, Word{0});
    visit_bits(row.data(), num_words, [&](int32_t wavelength) {
      const int32_t other = name[static_cast<size_t>(wavelength)];
      named[other / kWordBits] |= bit_of(other);
    });
  }
}

}  // namespace rostam::circuits
