// Deterministic hashing for seeded choices: splitmix64's finaliser (Steele, Lea, Flood, OOPSLA 2014).
#pragma once

#include <cstdint>

namespace rostam {

inline uint64_t mix(uint64_t value) {
  value += 0x9E3779B97F4A7C15ull;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
  return value ^ (value >> 31);
}

}  // namespace rostam
