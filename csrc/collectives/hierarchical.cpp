// Hierarchical all-reduce over m = p / g groups ("servers") of g consecutive ranks: ring reduce-scatter inside each
// group, ring all-reduce between the ranks of equal place, ring all-gather inside. In one piece, u = ceil(S/p):
//   2 (g-1) (alpha + m u / B) + 2 (m-1) (alpha + u / B).
// In K pieces, u = ceil(S/Kp), one behind the other by a step, so that all phases are under way at once:
//   sum over the L + K - 1 steps, L = 2 (g-1) + 2 (m-1), of
//   max(alpha_in + i m u / B_in, alpha_out + o u / B_out), i and o the pieces inside and between groups in that step,
// where messages inside and between groups share no link: max(2 (g-1) m / B_in, 2 (m-1) / B_out) S/p for large S and K.
// In every step a rank sends one message inside its group and one to another.
#include <algorithm>

#include "collectives/ring_chunks.h"
#include "collectives/schedule.h"
#include "sim/errors.h"

namespace rostam::collectives {

namespace {

class Hierarchical : public Schedule {
 public:
  Hierarchical(Shape shape, int32_t group_size, int32_t num_pieces)
      : Schedule(shape), group_size_(group_size), num_groups_(shape.num_ranks / group_size), num_pieces_(num_pieces) {}

  // Chunks of a piece are numbered place * num_groups + k: block `place` is what the ranks of that place reduce
  // together.
  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    for (const bool is_inside : {true, false}) {
      bool is_first = true;
      for (int32_t piece = first_piece(step); piece <= last_piece(step); ++piece) {
        if (goes_inside(step - piece) != is_inside) continue;
        out.push_back(transfer(rank, step - piece));
        out.back().source_chunk += piece * shape().num_ranks;
        out.back().target_chunk += piece * shape().num_ranks;
        out.back().joins_last = !is_first;
        is_first = false;
      }
    }
  }

  int32_t next_unlike(int32_t step) const override {
    if (num_pieces_ > 1) return step + 1;
    const int32_t inside = group_size_ - 1, between = 2 * (num_groups_ - 1);
    return step < inside ? inside : step < inside + between ? inside + between : shape().num_steps;
  }

  int64_t total_chunks_sent() const override {
    return int64_t{num_pieces_} * shape().num_ranks * (2 * (group_size_ - 1) * num_groups_ + 2 * (num_groups_ - 1));
  }
  int32_t num_receives(int32_t, int32_t step) const override {
    int32_t num_inside = 0;
    for (int32_t piece = first_piece(step); piece <= last_piece(step); ++piece) num_inside += goes_inside(step - piece);
    return (num_inside > 0) + (last_piece(step) - first_piece(step) + 1 > num_inside);
  }

 private:
  // Piece k takes its step 0 in step k; these are the pieces that are under way.
  int32_t first_piece(int32_t step) const {
    return std::max(0, step - (2 * (group_size_ - 1) + 2 * (num_groups_ - 1)) + 1);
  }
  int32_t last_piece(int32_t step) const { return std::min(num_pieces_ - 1, step); }
  bool goes_inside(int32_t step) const {
    return step < group_size_ - 1 || step >= group_size_ - 1 + 2 * (num_groups_ - 1);
  }

  Transfer transfer(int32_t rank, int32_t step) const {
    const int32_t g = group_size_, m = num_groups_;
    const int32_t group = rank / g, place = rank % g;
    const int32_t next_inside = group * g + wrap(place + 1, g);
    if (step < g - 1) {
      const int32_t block = reduce_scatter_chunk(place, step, g).chunk * m;
      return {next_inside, block, block, m, true};
    }
    step -= g - 1;
    if (step < 2 * (m - 1)) {
      const RingChunk passed = all_reduce_chunk(group, step, m);
      const int32_t chunk = place * m + passed.chunk;
      return {wrap(group + 1, m) * g + place, chunk, chunk, 1, passed.reduces};
    }
    const int32_t block = all_gather_chunk(place, step - 2 * (m - 1), g).chunk * m;
    return {next_inside, block, block, m, false};
  }

  int32_t group_size_;
  int32_t num_groups_;
  int32_t num_pieces_;
};

}  // namespace

std::unique_ptr<Schedule> make_all_reduce_hierarchical(int32_t p, const Layout& layout) {
  const bool is_one_size = layout.group_sizes.size() == 1;
  const int32_t g = is_one_size ? layout.group_sizes[0] : 0;
  if (g < 1 || p % g != 0) {
    ROSTAM_THROW(ConfigError, "hierarchical all_reduce over " << p << " ranks with group_size " << g
                                                              << "; the group size must divide the ranks");
  }
  const int32_t m = p / g;
  Shape shape;
  shape.num_ranks = p;
  shape.num_steps = p > 1 ? 2 * (g - 1) + 2 * (m - 1) + layout.num_pieces - 1 : 0;
  shape.num_chunks = layout.num_pieces * p;
  shape.is_synchronous = true;
  return std::make_unique<Hierarchical>(shape, g, layout.num_pieces);
}

}  // namespace rostam::collectives
