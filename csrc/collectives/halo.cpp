// neighbours: ranks stand in a line and send to the next and to the previous one; the first and the last have one.
// halo: half of the buffer to either: alpha + 2 t(ceil(S/2)) where one port carries both messages, alpha + t(ceil(S/2))
// where two do and for two ranks. halo_up, halo_down: all of it to the next, or to the previous: alpha + t(S).
#include "collectives/schedule.h"

namespace rostam::collectives {

namespace {

class Halo : public Schedule {
 public:
  Halo(Shape shape, bool goes_up, bool goes_down) : Schedule(shape), goes_up_(goes_up), goes_down_(goes_down) {}

  void sends(int32_t rank, int32_t, std::vector<Transfer>& out) const override {
    if (goes_up_ && rank + 1 < shape().num_ranks) out.push_back({rank + 1, 0, 0, 1, false});
    const int32_t last = shape().num_chunks - 1;
    if (goes_down_ && rank > 0) out.push_back({rank - 1, last, last, 1, false});
  }
  int64_t total_chunks_sent() const override {
    return int64_t{shape().num_chunks} * (shape().num_ranks - 1);  // one for every pair of neighbours and direction
  }
  int32_t num_receives(int32_t rank, int32_t) const override {
    return (goes_up_ && rank > 0) + (goes_down_ && rank + 1 < shape().num_ranks);
  }

 private:
  bool goes_up_;
  bool goes_down_;
};

std::unique_ptr<Schedule> make_halo(int32_t p, bool goes_up, bool goes_down) {
  Shape shape;
  shape.num_ranks = p;
  shape.num_steps = p > 1;
  shape.num_chunks = goes_up + goes_down;
  shape.is_in_place = false;
  return std::make_unique<Halo>(shape, goes_up, goes_down);
}

}  // namespace

std::unique_ptr<Schedule> make_halo_neighbours(int32_t p, const Layout&) { return make_halo(p, true, true); }
std::unique_ptr<Schedule> make_halo_up_neighbours(int32_t p, const Layout&) { return make_halo(p, true, false); }
std::unique_ptr<Schedule> make_halo_down_neighbours(int32_t p, const Layout&) { return make_halo(p, false, true); }

}  // namespace rostam::collectives
