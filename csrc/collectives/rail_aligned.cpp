// rail_aligned: all-to-all over m = p / g groups ("servers") of g consecutive ranks, in which data for another group's
// rank of place j go to the own group's rank of place j first, and from there along that place's rail: NCCL's PXN.
// In one piece, c = ceil(S/p), on links of their own inside groups and between ranks of equal place:
//   alpha_in + (g-1) m c / B_in, then alpha_out + (m-1) g c / B_out.
// In K pieces, c = ceil(S/Kp), the inside of one under way with the outside of the one before: the first of these,
// K - 1 times the larger, and the second. A rank sends K ((g-1) m + (m-1) g) chunks: those inside groups are m times
// those of direct messages, those between groups as many.
// Source: NVIDIA, "Doubling all2all Performance with NVIDIA Collective Communication Library 2.12" (2022).
#include "collectives/schedule.h"
#include "sim/errors.h"

namespace rostam::collectives {

namespace {

class RailAligned : public Schedule {
 public:
  RailAligned(Shape shape, int32_t group_size, int32_t num_pieces)
      : Schedule(shape), group_size_(group_size), num_groups_(shape.num_ranks / group_size), num_pieces_(num_pieces) {}

  // Chunk t g + j of a piece is for rank j of group t; after the first phase, at rank j, what rank i of the own group
  // has for (t, j) is chunk t g + i; after the second, chunk t g + i is what (t, i) sent.
  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    const int32_t g = group_size_, m = num_groups_, group = rank / g, place = rank % g;
    if (is_under_way(inside_piece(step), g)) {
      const int32_t first = inside_piece(step) * shape().num_ranks;
      for (int32_t shift = 1; shift < g; ++shift) {
        const int32_t peer = (place + shift) % g;
        for (int32_t t = 0; t < m; ++t) {
          out.push_back({group * g + peer, first + t * g + peer, first + t * g + place, 1, false, t > 0});
        }
      }
    }
    if (is_under_way(between_piece(step), m)) {
      const int32_t first = between_piece(step) * shape().num_ranks;
      for (int32_t shift = 1; shift < m; ++shift) {
        const int32_t peer = (group + shift) % m;
        out.push_back({peer * g + place, first + peer * g, first + group * g, g, false});
      }
    }
  }

  int64_t total_chunks_sent() const override {
    const int64_t g = group_size_, m = num_groups_;
    return num_pieces_ * shape().num_ranks * ((g - 1) * m + (m - 1) * g);
  }
  int32_t num_receives(int32_t, int32_t step) const override {
    return (is_under_way(inside_piece(step), group_size_) ? group_size_ - 1 : 0) +
           (is_under_way(between_piece(step), num_groups_) ? num_groups_ - 1 : 0);
  }

 private:
  // Piece k goes inside groups in step k, and between them in the next one.
  int32_t inside_piece(int32_t step) const { return step; }
  int32_t between_piece(int32_t step) const { return step - (group_size_ > 1); }
  bool is_under_way(int32_t piece, int32_t num_peers) const {
    return num_peers > 1 && piece >= 0 && piece < num_pieces_;
  }

  int32_t group_size_;
  int32_t num_groups_;
  int32_t num_pieces_;
};

}  // namespace

std::unique_ptr<Schedule> make_all_to_all_rail_aligned(int32_t p, const Layout& layout) {
  const int32_t g = layout.group_sizes.size() == 1 ? layout.group_sizes[0] : 0;
  if (g < 1 || p % g != 0) {
    ROSTAM_THROW(ConfigError, "rail_aligned all_to_all over " << p << " ranks with group_size " << g
                                                              << "; the group size must divide the ranks");
  }
  Shape shape;
  shape.num_ranks = p;
  shape.num_steps = p > 1 ? (g > 1) + (p > g) + layout.num_pieces - 1 : 0;
  shape.num_chunks = layout.num_pieces * p;
  return std::make_unique<RailAligned>(shape, g, layout.num_pieces);
}

}  // namespace rostam::collectives
