// star: rank 0 takes and adds every rank's buffer, then sends the sum back to all.
// Closed form on an ideal switch: 2 (alpha + (p - 1) S / B), the root's port being the one that binds.
#include "collectives/schedule.h"

namespace rostam::collectives {

namespace {

Shape star_shape(int32_t p) {
  Shape shape;
  shape.num_ranks = p;
  shape.num_steps = p > 1 ? 2 : 0;
  shape.num_chunks = 1;
  return shape;
}

class Star : public Schedule {
 public:
  explicit Star(int32_t p) : Schedule(star_shape(p)) {}
  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    if (step == 0 && rank > 0) out.push_back({0, 0, 0, 1, true});
    if (step == 1 && rank == 0) {
      for (int32_t peer = 1; peer < shape().num_ranks; ++peer) out.push_back({peer, 0, 0, 1, false});
    }
  }
  int32_t num_receives(int32_t rank, int32_t step) const override {
    return step == 0 ? (rank == 0 ? shape().num_ranks - 1 : 0) : (rank == 0 ? 0 : 1);
  }
  int64_t total_chunks_sent() const override { return int64_t{2} * (shape().num_ranks - 1); }
};

}  // namespace

std::unique_ptr<Schedule> make_all_reduce_star(int32_t p, const Layout&) { return std::make_unique<Star>(p); }

}  // namespace rostam::collectives
