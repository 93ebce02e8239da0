// Sums and products of byte counts that say so when they leave the range of int64, instead of wrapping round.
#pragma once

#include <cstdint>

#include "sim/errors.h"

namespace rostam {

[[noreturn]] inline void throw_bytes_overflow() {
  throw RangeError("a sum of bytes passes 2^63 - 1 (8 EiB); look for a size with the wrong unit");
}

// Throws: RangeError.
inline int64_t checked_add(int64_t a, int64_t b) {
  int64_t sum;
  if (__builtin_expect(__builtin_add_overflow(a, b, &sum), false)) throw_bytes_overflow();
  return sum;
}

inline int64_t checked_multiply(int64_t a, int64_t b) {
  int64_t product;
  if (__builtin_expect(__builtin_mul_overflow(a, b, &product), false)) throw_bytes_overflow();
  return product;
}

// a / b, rounded up. REQUIRES: a >= 0, b > 0.
inline int64_t divide_up(int64_t a, int64_t b) { return a / b + (a % b != 0); }

}  // namespace rostam
