// Recursive halving (reduce-scatter), then recursive doubling (all-gather) over q = 2^floor(log2 p) ranks:
// 2 log2(q) alpha + 2 (q-1)/q S/B. If p > q, the first 2 (p - q) ranks pair up: the even one adds its whole buffer
// onto the odd one before and gets the result after, which adds 2 (alpha + S/B).
#include "collectives/schedule.h"

namespace rostam::collectives {

namespace {

int32_t floor_log2(int32_t p) {
  int32_t levels = 0;
  while ((int64_t{2} << levels) <= p) ++levels;
  return levels;
}

class HalvingDoubling : public Schedule {
 public:
  HalvingDoubling(int32_t p, Shape shape) : Schedule(shape), levels_(floor_log2(p)), num_pairs_(p - (1 << levels_)) {}

  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    const int32_t q = 1 << levels_;
    if (is_outer(step)) {
      const bool is_sender = rank < 2 * num_pairs_ && (rank % 2 == 0) == (step == 0);
      if (is_sender) out.push_back({rank ^ 1, 0, 0, q, step == 0});
      return;
    }
    const int32_t me = inner_rank(rank);
    if (me < 0) return;
    const int32_t round = inner_step(step);
    const bool is_halving = round < levels_;
    // Halving round k talks at distance q / 2^(k+1); doubling retraces the rounds backwards.
    const int32_t distance = q >> (is_halving ? round + 1 : 2 * levels_ - round);
    const int32_t peer = me ^ distance;
    // Before this halving (after this doubling) the pair holds the aligned block of 2 * distance chunks.
    const int32_t owner = is_halving ? peer : me;
    const int32_t first = owner & ~(distance - 1);
    out.push_back({outer_rank(peer), first, first, distance, is_halving});
  }

  int64_t total_chunks_sent() const override {
    return int64_t{2} * num_pairs_ * (1 << levels_) + (int64_t{2} << levels_) * ((1 << levels_) - 1);
  }
  int32_t num_receives(int32_t rank, int32_t step) const override {
    if (is_outer(step)) return rank < 2 * num_pairs_ && (rank % 2 == 1) == (step == 0);
    return inner_rank(rank) >= 0;
  }

 private:
  bool is_outer(int32_t step) const { return num_pairs_ > 0 && (step == 0 || step == shape().num_steps - 1); }
  int32_t inner_step(int32_t step) const { return step - (num_pairs_ > 0 ? 1 : 0); }
  int32_t inner_rank(int32_t rank) const {
    if (rank >= 2 * num_pairs_) return rank - num_pairs_;
    return rank % 2 == 1 ? rank / 2 : -1;
  }
  int32_t outer_rank(int32_t inner) const { return inner < num_pairs_ ? 2 * inner + 1 : inner + num_pairs_; }

  int32_t levels_;
  int32_t num_pairs_;
};

}  // namespace

std::unique_ptr<Schedule> make_all_reduce_halving_doubling(int32_t p, const Layout&) {
  const int32_t levels = floor_log2(p);
  Shape shape;
  shape.num_ranks = p;
  shape.num_steps = 2 * levels + ((1 << levels) < p ? 2 : 0);
  shape.num_chunks = 1 << levels;
  shape.is_synchronous = true;
  return std::make_unique<HalvingDoubling>(p, shape);
}

}  // namespace rostam::collectives
