// Which chunk the rank at `position` of a directed ring of n passes on to position + 1 in a step. Chunk k of the
// ring's n starts anywhere and ends reduced at position k - 1 (all_reduce, before it is copied) or k (reduce_scatter).
#pragma once

#include <cstdint>

#include "collectives/wrap.h"

namespace rostam::collectives {

// One chunk of a ring step, and whether the receiver adds it to its own.
struct RingChunk {
  int32_t chunk = 0;
  bool reduces = false;
};

// all_reduce: n - 1 reducing steps, then n - 1 copying ones.
inline RingChunk all_reduce_chunk(int32_t position, int32_t step, int32_t n) {
  if (step < n - 1) return {wrap(position - step, n), true};
  return {wrap(position + 1 - (step - (n - 1)), n), false};
}

// reduce_scatter in n - 1 steps: chunk k ends at position k.
inline RingChunk reduce_scatter_chunk(int32_t position, int32_t step, int32_t n) {
  return {wrap(position - step - 1, n), true};
}

// all_gather in n - 1 steps: chunk k starts at position k.
inline RingChunk all_gather_chunk(int32_t position, int32_t step, int32_t n) {
  return {wrap(position - step, n), false};
}

}  // namespace rostam::collectives
