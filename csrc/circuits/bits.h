// Words of bits: rows of wavelengths or channels, 64 a word.
// Example: visit_bits(row, 2, [&](int32_t bit) { ... }) calls with each that is set in a row of 128, ascending.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rostam::circuits {

using Word = uint64_t;
constexpr int32_t kWordBits = 64;

inline size_t num_words_of(int32_t num_bits) { return (static_cast<size_t>(num_bits) + kWordBits - 1) / kWordBits; }
inline Word bit_of(int32_t bit) { return Word{1} << (bit % kWordBits); }

// Not the compiler's own, which is a call where the processor may lack the instruction.
inline int32_t num_set(Word bits) {
  bits -= bits >> 1 & 0x5555555555555555;
  bits = (bits & 0x3333333333333333) + (bits >> 2 & 0x3333333333333333);
  bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0f;
  return static_cast<int32_t>(bits * 0x0101010101010101 >> 56);
}

// The positions of the lowest and of the highest one that is set. REQUIRES: bits != 0.
inline int32_t lowest_bit(Word bits) { return __builtin_ctzll(bits); }
inline int32_t highest_bit(Word bits) { return kWordBits - 1 - __builtin_clzll(bits); }

// The lowest `count` of those that are set, or the highest; all where there are no more. Cost: O(count).
inline Word some_of(Word bits, int32_t count, bool from_top) {
  Word found = 0;
  for (; count > 0 && bits != 0; --count) {
    const Word one = from_top ? bit_of(highest_bit(bits)) : bits & (~bits + 1);
    found |= one;
    bits ^= one;
  }
  return found;
}

template <typename Visit>
void visit_bits(const Word* row, size_t num_words, Visit visit) {
  for (size_t word = 0; word < num_words; ++word) {
    for (Word left = row[word]; left != 0; left &= left - 1)
      visit(static_cast<int32_t>(word) * kWordBits + lowest_bit(left));
  }
}

}  // namespace rostam::circuits
