// ring: every rank sends its buffer to the next one, the last to the first, and receives that of the rank before, as
// keys and values travel in ring attention: alpha + t(S). copy is the same written straight into the next one's memory,
// which links that cost something to start tell apart (collectives/transport.py).
#include "collectives/schedule.h"
#include "collectives/wrap.h"

namespace rostam::collectives {

namespace {

Shape shift_shape(int32_t p) {
  Shape shape;
  shape.num_ranks = p;
  shape.num_steps = p > 1;
  shape.num_chunks = 1;
  shape.is_in_place = false;
  return shape;
}

class Shift : public Schedule {
 public:
  explicit Shift(int32_t p) : Schedule(shift_shape(p)) {}

  void sends(int32_t rank, int32_t, std::vector<Transfer>& out) const override {
    out.push_back({wrap(rank + 1, shape().num_ranks), 0, 0, 1, false});
  }
  int64_t total_chunks_sent() const override { return shape().num_steps * int64_t{shape().num_ranks}; }
  int32_t num_receives(int32_t, int32_t) const override { return 1; }
};

}  // namespace

std::unique_ptr<Schedule> make_shift_ring(int32_t p, const Layout&) { return std::make_unique<Shift>(p); }
std::unique_ptr<Schedule> make_copy_ring(int32_t p, const Layout&) { return std::make_unique<Shift>(p); }

}  // namespace rostam::collectives
