// Ranks and chunks go round: the remainder in [0, modulus), also of negative numbers.
#pragma once

#include <cstdint>

namespace rostam::collectives {

inline int32_t wrap(int32_t value, int32_t modulus) {
  const int32_t rest = value % modulus;
  return rest < 0 ? rest + modulus : rest;
}

}  // namespace rostam::collectives
