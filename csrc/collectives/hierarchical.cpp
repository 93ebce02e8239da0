// Hierarchical all-reduce over m = p / g groups ("servers") of g consecutive ranks: ring reduce-scatter inside each
// group, ring all-reduce between the ranks of equal place, ring all-gather inside:
// 2 (g-1) (alpha + ceil(S/p) m / B) + 2 (m-1) (alpha + ceil(S/p) / B).
#include "collectives/schedule.h"
#include "collectives/wrap.h"
#include "sim/errors.h"

namespace rostam::collectives {

namespace {

class Hierarchical : public Schedule {
 public:
  Hierarchical(Shape shape, int32_t group_size)
      : Schedule(shape), group_size_(group_size), num_groups_(shape.num_ranks / group_size) {}

  // Chunks are numbered place * num_groups + k: block `place` is what the ranks of that place reduce together.
  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    const int32_t g = group_size_, m = num_groups_;
    const int32_t group = rank / g, place = rank % g;
    const int32_t next_inside = group * g + wrap(place + 1, g);
    if (step < g - 1) {
      const int32_t block = wrap(place - step - 1, g) * m;
      out.push_back({next_inside, block, block, m, true});
      return;
    }
    step -= g - 1;
    if (step < 2 * (m - 1)) {
      const bool reduces = step < m - 1;
      const int32_t k = reduces ? wrap(group - step, m) : wrap(group + 1 - (step - (m - 1)), m);
      const int32_t chunk = place * m + k;
      out.push_back({wrap(group + 1, m) * g + place, chunk, chunk, 1, reduces});
      return;
    }
    step -= 2 * (m - 1);
    const int32_t block = wrap(place - step, g) * m;
    out.push_back({next_inside, block, block, m, false});
  }

  int64_t total_chunks_sent() const override {
    return int64_t{shape().num_ranks} * (2 * (group_size_ - 1) * num_groups_ + 2 * (num_groups_ - 1));
  }
  int32_t num_receives(int32_t, int32_t) const override { return 1; }

 private:
  int32_t group_size_;
  int32_t num_groups_;
};

}  // namespace

std::unique_ptr<Schedule> make_all_reduce_hierarchical(int32_t p, int32_t group_size) {
  if (group_size < 1 || p % group_size != 0) {
    ROSTAM_THROW(ConfigError, "hierarchical all_reduce over " << p << " ranks with group_size " << group_size
                                                              << "; the group size must divide the ranks");
  }
  const int32_t m = p / group_size;
  Shape shape;
  shape.num_ranks = p;
  shape.num_steps = 2 * (group_size - 1) + 2 * (m - 1);
  shape.num_chunks = p;
  shape.is_synchronous = true;
  return std::make_unique<Hierarchical>(shape, group_size);
}

}  // namespace rostam::collectives
