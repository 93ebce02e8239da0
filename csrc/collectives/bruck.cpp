// Bruck et al.'s algorithms, in ceil(log2 p) steps of one message for each rank, of any number of ranks.
// all_gather: in step k rank r sends all that it holds, or what is missing in the end, min(2^k, p - 2^k) chunks, to
// r - 2^k: ceil(log2 p) alpha + (p-1)/p S/B.
// all_to_all: what goes from r to r + j travels 2^k for each bit k of j; so chunks pass through other ranks and arrive
// with popcount(j) messages: ceil(log2 p) alpha + sum over j of popcount(j) S/p/B, about log2(p)/2 S/B. A chunk waits
// on rank q at place q + j, where its own is in the input; what came from r stands at place 2 q - r at the end, and not
// at r: which place is which takes a copy inside each rank, and no time here. Source: Bruck, Ho, Kipnis, Upfal,
// Weathersby, Efficient Algorithms for All-to-All Communications in Multiport Message-Passing Systems, IEEE TPDS 8(11),
// 1997.
#include <algorithm>

#include "collectives/schedule.h"
#include "collectives/wrap.h"

namespace rostam::collectives {

namespace {

Shape bruck_shape(int32_t p) {
  Shape shape;
  shape.num_ranks = p;
  while ((int64_t{1} << shape.num_steps) < p) ++shape.num_steps;
  shape.num_chunks = p;
  shape.is_synchronous = true;
  return shape;
}

class BruckAllGather : public Schedule {
 public:
  explicit BruckAllGather(int32_t p) : Schedule(bruck_shape(p)) {}

  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    const int32_t p = shape().num_ranks, distance = 1 << step;
    out.push_back({wrap(rank - distance, p), rank, rank, std::min(distance, p - distance), false});
  }
  int64_t total_chunks_sent() const override { return int64_t{shape().num_ranks} * (shape().num_ranks - 1); }
  int32_t num_receives(int32_t, int32_t) const override { return 1; }
};

class BruckAllToAll : public Schedule {
 public:
  explicit BruckAllToAll(int32_t p) : Schedule(bruck_shape(p)) {}

  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    const int32_t p = shape().num_ranks, distance = 1 << step;
    const int32_t peer = wrap(rank + distance, p);
    for (int64_t j = distance; j < p; j += 2 * int64_t{distance}) {  // runs of places with the bit of this step
      const auto first = static_cast<int32_t>(j);
      const int32_t count = std::min(distance, p - first);
      out.push_back({peer, wrap(rank + first, p), wrap(peer + first, p), count, false, first > distance});
    }
  }
  int64_t total_chunks_sent() const override {
    int64_t chunks = 0;
    for (int32_t j = 1; j < shape().num_ranks; ++j) {
      for (int32_t rest = j; rest > 0; rest >>= 1) chunks += rest & 1;
    }
    return chunks * shape().num_ranks;
  }
  int32_t num_receives(int32_t, int32_t) const override { return 1; }
};

}  // namespace

std::unique_ptr<Schedule> make_all_gather_bruck(int32_t p, const Layout&) {
  return std::make_unique<BruckAllGather>(p);
}
std::unique_ptr<Schedule> make_all_to_all_bruck(int32_t p, const Layout&) { return std::make_unique<BruckAllToAll>(p); }

}  // namespace rostam::collectives
