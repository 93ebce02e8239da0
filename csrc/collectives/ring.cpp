// Ring algorithms on ranks 0 -> 1 -> ... -> p-1 -> 0, one chunk of ceil(S/p) a step.
// all_reduce: 2 (p-1) (alpha + ceil(S/p) / B); reduce_scatter and all_gather: half of it.
// bidirectional_ring: two opposite rings on half the buffer each: 2 (p-1) (alpha + ceil(S/2p) / B_if).
#include "collectives/ring_chunks.h"
#include "collectives/schedule.h"

namespace rostam::collectives {

namespace {

Shape ring_shape(int32_t p, int32_t num_steps, int32_t num_chunks, bool is_one_way) {
  Shape shape;
  shape.num_ranks = p;
  shape.num_steps = p > 1 ? num_steps : 0;
  shape.num_chunks = num_chunks;
  shape.has_ordered_arrivals = is_one_way;
  shape.has_fixed_peers = true;
  return shape;
}

// To the next rank of the ring.
Transfer pass_on(int32_t rank, const RingChunk& passed, int32_t p) {
  return {wrap(rank + 1, p), passed.chunk, passed.chunk, 1, passed.reduces};
}

class RingAllReduce : public Schedule {
 public:
  explicit RingAllReduce(int32_t p) : Schedule(ring_shape(p, 2 * (p - 1), p, true)) {}
  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    const int32_t p = shape().num_ranks;
    out.push_back(pass_on(rank, all_reduce_chunk(rank, step, p), p));
  }
  int64_t total_chunks_sent() const override { return int64_t{shape().num_ranks} * 2 * (shape().num_ranks - 1); }
  int32_t num_receives(int32_t, int32_t) const override { return 1; }
};

class BidirectionalRing : public Schedule {
 public:
  explicit BidirectionalRing(int32_t p) : Schedule(ring_shape(p, 2 * (p - 1), 2 * p, false)) {}
  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    const int32_t p = shape().num_ranks;
    out.push_back(pass_on(rank, all_reduce_chunk(rank, step, p), p));
    // The other half runs the mirrored ring: rank r plays rank p - 1 - r.
    Transfer mirrored = pass_on(p - 1 - rank, all_reduce_chunk(p - 1 - rank, step, p), p);
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
    out.push_back(pass_on(rank, reduce_scatter_chunk(rank, step, p), p));
  }
  int64_t total_chunks_sent() const override { return int64_t{shape().num_ranks} * (shape().num_ranks - 1); }
  int32_t num_receives(int32_t, int32_t) const override { return 1; }
};

class RingAllGather : public Schedule {
 public:
  explicit RingAllGather(int32_t p) : Schedule(ring_shape(p, p - 1, p, true)) {}
  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    const int32_t p = shape().num_ranks;
    out.push_back(pass_on(rank, all_gather_chunk(rank, step, p), p));
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
