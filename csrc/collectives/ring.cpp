// Ring algorithms on ranks 0 -> 1 -> ... -> p-1 -> 0, one chunk of ceil(S/p) a step.
// all_reduce: 2 (p-1) (alpha + ceil(S/p) / B); reduce_scatter and all_gather: half of it.
// bidirectional_ring: two opposite rings on half the buffer each: 2 (p-1) (alpha + ceil(S/2p) / B_if).
#include "collectives/schedule.h"
#include "collectives/wrap.h"

namespace rostam::collectives {

namespace {

Shape ring_shape(int32_t p, int32_t num_steps, int32_t num_chunks, bool is_one_way) {
  Shape shape;
  shape.num_ranks = p;
  shape.num_steps = p > 1 ? num_steps : 0;
  shape.num_chunks = num_chunks;
  shape.has_ordered_arrivals = is_one_way;
  return shape;
}

// Chunk that rank r passes on in a step of a ring all-reduce: p - 1 reducing steps, then p - 1 copying ones.
Transfer all_reduce_transfer(int32_t rank, int32_t step, int32_t p) {
  const bool reduces = step < p - 1;
  const int32_t chunk = reduces ? wrap(rank - step, p) : wrap(rank + 1 - (step - (p - 1)), p);
  return {wrap(rank + 1, p), chunk, chunk, 1, reduces};
}

class RingAllReduce : public Schedule {
 public:
  explicit RingAllReduce(int32_t p) : Schedule(ring_shape(p, 2 * (p - 1), p, true)) {}
  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    out.push_back(all_reduce_transfer(rank, step, shape().num_ranks));
  }
  int64_t total_chunks_sent() const override { return int64_t{shape().num_ranks} * 2 * (shape().num_ranks - 1); }
  int32_t num_receives(int32_t, int32_t) const override { return 1; }
};

class BidirectionalRing : public Schedule {
 public:
  explicit BidirectionalRing(int32_t p) : Schedule(ring_shape(p, 2 * (p - 1), 2 * p, false)) {}
  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    const int32_t p = shape().num_ranks;
    out.push_back(all_reduce_transfer(rank, step, p));
    // The other half runs the mirrored ring: rank r plays rank p - 1 - r.
    Transfer mirrored = all_reduce_transfer(p - 1 - rank, step, p);
    mirrored.peer = p - 1 - mirrored.peer;
    mirrored.source_chunk += p;
    mirrored.target_chunk += p;
    out.push_back(mirrored);
  }
  int64_t total_chunks_sent() const override { return int64_t{shape().num_ranks} * 4 * (shape().num_ranks - 1); }
  int32_t num_receives(int32_t, int32_t) const override { return 2; }
};

class RingReduceScatter : public Schedule {
 public:
  explicit RingReduceScatter(int32_t p) : Schedule(ring_shape(p, p - 1, p, true)) {}
  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    const int32_t p = shape().num_ranks;
    const int32_t chunk = wrap(rank - step - 1, p);  // ends with chunk r on rank r
    out.push_back({wrap(rank + 1, p), chunk, chunk, 1, true});
  }
  int64_t total_chunks_sent() const override { return int64_t{shape().num_ranks} * (shape().num_ranks - 1); }
  int32_t num_receives(int32_t, int32_t) const override { return 1; }
};

class RingAllGather : public Schedule {
 public:
  explicit RingAllGather(int32_t p) : Schedule(ring_shape(p, p - 1, p, true)) {}
  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    const int32_t p = shape().num_ranks;
    const int32_t chunk = wrap(rank - step, p);
    out.push_back({wrap(rank + 1, p), chunk, chunk, 1, false});
  }
  int64_t total_chunks_sent() const override { return int64_t{shape().num_ranks} * (shape().num_ranks - 1); }
  int32_t num_receives(int32_t, int32_t) const override { return 1; }
};

}  // namespace

std::unique_ptr<Schedule> make_all_reduce_ring(int32_t p, int32_t) { return std::make_unique<RingAllReduce>(p); }
std::unique_ptr<Schedule> make_all_reduce_bidirectional_ring(int32_t p, int32_t) {
  return std::make_unique<BidirectionalRing>(p);
}
std::unique_ptr<Schedule> make_reduce_scatter_ring(int32_t p, int32_t) {
  return std::make_unique<RingReduceScatter>(p);
}
std::unique_ptr<Schedule> make_all_gather_ring(int32_t p, int32_t) { return std::make_unique<RingAllGather>(p); }

}  // namespace rostam::collectives
