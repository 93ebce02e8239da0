// Region: ranks that switches serve as one, as those of a multicast address do: what they send is added up where paths
// meet, what is written is copied there, and every link carries the bytes once (routing/region_route.h).
// Example: of 16 ranks, {kPull, 1, 8} makes two regions of eight consecutive ranks, {kPush, 8, 2} eight of two ranks
// with the same place among eight.
#pragma once

#include <cstdint>

#include "routing/region_route.h"

namespace rostam::collectives {

using routing::SwitchOp;

// Of every rank: the `size` ranks that stand `stride` apart, itself among them. Ranks fill whole regions.
struct Region {
  SwitchOp op = SwitchOp::kMulticast;
  int32_t stride = 1;
  int32_t size = 1;

  int32_t place(int32_t rank) const { return rank / stride % size; }
  int32_t member(int32_t rank, int32_t at) const { return rank + (at - place(rank)) * stride; }
  // Bytes that its members receive together of a transfer of which they send `bytes` together.
  int64_t received(int64_t bytes) const {
    if (op == SwitchOp::kMulticast) return bytes * size;
    return op == SwitchOp::kReduce ? bytes / size : bytes;
  }
  bool operator==(const Region& other) const { return op == other.op && stride == other.stride && size == other.size; }
};

// What a rank owns of a step: chunks that the sources of its region send together, a number that the region's size
// divides where they are reduced.
struct RegionTransfer {
  int32_t region = 0;  // index into Schedule::regions()
  int32_t num_chunks = 0;
};

}  // namespace rostam::collectives
