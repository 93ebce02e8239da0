// direct: every rank exchanges with every other one at once. reduce_scatter sends each rank its chunk, which it adds
// up, all_gather sends the own chunk to all: alpha + (p-1)/p S/B through one interface, alpha + ceil(S/p)/B where every
// pair has a link of B; all_reduce is the one and then the other.
#include "collectives/schedule.h"

namespace rostam::collectives {

namespace {

Shape direct_shape(int32_t p, int32_t num_steps) {
  Shape shape;
  shape.num_ranks = p;
  shape.num_steps = p > 1 ? num_steps : 0;
  shape.num_chunks = p;
  shape.is_all_alike = true;
  return shape;
}

class Direct : public Schedule {
 public:
  // Scatters come before gathers.
  Direct(int32_t p, int32_t num_scatters, int32_t num_gathers)
      : Schedule(direct_shape(p, num_scatters + num_gathers)), num_scatters_(num_scatters) {}

  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    const int32_t p = shape().num_ranks;
    for (int32_t shift = 1; shift < p; ++shift) {
      const int32_t peer = (rank + shift) % p;
      const bool scatters = step < num_scatters_;
      const int32_t chunk = scatters ? peer : rank;
      out.push_back({peer, chunk, chunk, 1, scatters});
    }
  }
  int64_t total_chunks_sent() const override {
    return int64_t{shape().num_steps} * shape().num_ranks * (shape().num_ranks - 1);
  }
  int32_t num_receives(int32_t, int32_t) const override { return shape().num_ranks - 1; }

 private:
  int32_t num_scatters_;
};

}  // namespace

std::unique_ptr<Schedule> make_all_reduce_direct(int32_t p, const Layout&) { return std::make_unique<Direct>(p, 1, 1); }
std::unique_ptr<Schedule> make_reduce_scatter_direct(int32_t p, const Layout&) {
  return std::make_unique<Direct>(p, 1, 0);
}
std::unique_ptr<Schedule> make_all_gather_direct(int32_t p, const Layout&) { return std::make_unique<Direct>(p, 0, 1); }

}  // namespace rostam::collectives
