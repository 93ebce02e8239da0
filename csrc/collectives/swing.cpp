// Swing: halving and doubling whose partners swing to and fro, so that a step of distance 2^s goes about 2^s / 3 links
// on a ring: in step s rank r talks to r + rho(s) if it is even, to r - rho(s) if it is odd, rho(s) = (1 - (-2)^(s+1))
// / 3: 1, -1, 3, -5, 11. Distances are odd, so that even and odd ranks meet. swing: ranks on a ring, q = 2^k of them;
// two copies on half of the buffer each, one mirrored, use both directions: 2 k alpha + 2 (q-1)/q S/B through one port.
// Ranks beyond q are folded into others, as halving_doubling does it. swing_2d: rows and columns are powers of two;
// four copies on a quarter each, which begin in rows or in columns, plain or mirrored, and change the dimension every
// step while both have steps left. Step s of the reduce-scatter hands over the half of what a rank still reduces that
// its partner, and those that the partner talks to later, will hold; the all-gather goes back. Chunks are numbered so
// that such halves are runs. Source: De Sensi, Bonato, Saam, Hoefler, Swing: Short-cutting Rings for Higher Bandwidth
// Allreduce, NSDI 2024.
#include <numeric>

#include "collectives/schedule.h"
#include "collectives/wrap.h"
#include "sim/errors.h"

namespace rostam::collectives {

namespace {

bool is_power_of_two(int32_t n) { return n > 0 && (n & (n - 1)) == 0; }

int32_t log2_of(int32_t power) {
  int32_t levels = 0;
  while ((int64_t{1} << levels) < power) ++levels;
  return levels;
}

int32_t rho(int32_t step) {
  int64_t power = 1;
  for (int32_t k = 0; k <= step; ++k) power *= -2;
  return static_cast<int32_t>((1 - power) / 3);
}

// One copy: the peer of each rank in each step of the reduce-scatter, and the number of its chunk.
class Lane {
 public:
  Lane(const Grid& grid, bool columns_first, bool is_mirrored) {
    const int32_t steps_in_row = log2_of(grid.columns), steps_in_column = log2_of(grid.rows);
    int32_t in_row = 0, in_column = 0;
    for (int32_t step = 0; step < steps_in_row + steps_in_column; ++step) {
      const bool wants_row = (step % 2 == 1) == columns_first;
      const bool is_row = in_row < steps_in_row && (wants_row || in_column == steps_in_column);
      partners_.push_back(partners(grid, is_row, is_row ? in_row++ : in_column++, is_mirrored));
    }
    number_chunks(grid.rows * grid.columns);
  }

  int32_t num_steps() const { return static_cast<int32_t>(partners_.size()); }
  int32_t partner(int32_t rank, int32_t step) const {
    return partners_[static_cast<size_t>(step)][static_cast<size_t>(rank)];
  }
  // The chunks that a rank and those that it talks to in later steps hold in the end.
  int32_t first_chunk(int32_t rank, int32_t step) const {
    return chunk_[static_cast<size_t>(rank)] & ~(num_chunks(step) - 1);
  }
  int32_t num_chunks(int32_t step) const { return 1 << (num_steps() - step - 1); }

 private:
  static std::vector<int32_t> partners(const Grid& grid, bool is_row, int32_t step, bool is_mirrored) {
    std::vector<int32_t> found;
    for (int32_t rank = 0; rank < grid.rows * grid.columns; ++rank) {
      const int32_t row = rank / grid.columns, column = rank % grid.columns;
      const int32_t place = is_row ? column : row;
      const int32_t ahead = (place % 2 == 0) != is_mirrored ? rho(step) : -rho(step);
      const int32_t to = wrap(place + ahead, is_row ? grid.columns : grid.rows);
      found.push_back(is_row ? row * grid.columns + to : to * grid.columns + column);
    }
    return found;
  }

  // From the last step backwards partners' sets become one: the half of the lower first rank has the lower numbers.
  void number_chunks(int32_t q) {
    chunk_.assign(static_cast<size_t>(q), 0);
    std::vector<int32_t> first(static_cast<size_t>(q));  // of the set of each rank, its lowest
    std::iota(first.begin(), first.end(), 0);
    for (int32_t step = num_steps(); step-- > 0;) {
      std::vector<int32_t> joined(first.size());
      for (int32_t rank = 0; rank < q; ++rank) {
        const int32_t own = first[static_cast<size_t>(rank)];
        const int32_t other = first[static_cast<size_t>(partner(rank, step))];
        ROSTAM_CHECK(own != other, "rank " << rank << " meets its own set in step " << step << " of swing");
        joined[static_cast<size_t>(rank)] = own < other ? own : other;
        if (own > other) chunk_[static_cast<size_t>(rank)] += num_chunks(step);
      }
      first = std::move(joined);
    }
  }

  std::vector<std::vector<int32_t>> partners_;  // [step][rank]
  std::vector<int32_t> chunk_;
};

class Swing : public Schedule {
 public:
  // lanes: over the q inner ranks; outer ones beyond them fold into the first.
  Swing(std::vector<Lane> lanes, int32_t num_inner, Shape shape)
      : Schedule(shape), lanes_(std::move(lanes)), num_inner_(num_inner), num_pairs_(shape.num_ranks - num_inner) {}

  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    if (is_outer(step)) {
      const bool is_sender = rank < 2 * num_pairs_ && (rank % 2 == 0) == (step == 0);
      if (is_sender) out.push_back({rank ^ 1, 0, 0, shape().num_chunks, step == 0});
      return;
    }
    const int32_t me = inner_rank(rank);
    if (me < 0) return;
    const int32_t round = step - (num_pairs_ > 0 ? 1 : 0);
    for (size_t k = 0; k < lanes_.size(); ++k) {
      const Lane& lane = lanes_[k];
      const bool is_scatter = round < lane.num_steps();
      const int32_t at = is_scatter ? round : 2 * lane.num_steps() - 1 - round;
      const int32_t peer = lane.partner(me, at);
      const int32_t first = static_cast<int32_t>(k) * num_inner_ + lane.first_chunk(is_scatter ? peer : me, at);
      const int32_t to = outer_rank(peer);
      const bool joins = !out.empty() && out.back().peer == to;  // of two ranks both copies go the same way
      out.push_back({to, first, first, lane.num_chunks(at), is_scatter, joins});
    }
  }

  int64_t total_chunks_sent() const override {
    return int64_t{2} * num_pairs_ * shape().num_chunks + int64_t{2} * shape().num_chunks * (num_inner_ - 1);
  }

  int32_t num_receives(int32_t rank, int32_t step) const override {
    if (is_outer(step)) return rank < 2 * num_pairs_ && (rank % 2 == 1) == (step == 0);
    if (inner_rank(rank) < 0) return 0;
    std::vector<Transfer> own;  // partners are mutual
    messages(rank, step, own);
    return static_cast<int32_t>(own.size());
  }

 private:
  bool is_outer(int32_t step) const { return num_pairs_ > 0 && (step == 0 || step == shape().num_steps - 1); }
  int32_t inner_rank(int32_t rank) const {
    if (rank >= 2 * num_pairs_) return rank - num_pairs_;
    return rank % 2 == 1 ? rank / 2 : -1;
  }
  int32_t outer_rank(int32_t inner) const { return inner < num_pairs_ ? 2 * inner + 1 : inner + num_pairs_; }

  std::vector<Lane> lanes_;
  int32_t num_inner_;
  int32_t num_pairs_;
};

Shape swing_shape(int32_t p, int32_t num_inner, int32_t num_lanes) {
  Shape shape;
  shape.num_ranks = p;
  shape.num_steps = 2 * log2_of(num_inner) + (num_inner < p ? 2 : 0);
  shape.num_chunks = num_lanes * num_inner;
  shape.is_synchronous = true;
  return shape;
}

}  // namespace

std::unique_ptr<Schedule> make_all_reduce_swing(int32_t p, const Layout&) {
  int32_t q = 1;
  while (2 * int64_t{q} <= p) q *= 2;
  const Grid grid = {1, q};
  return std::make_unique<Swing>(std::vector<Lane>{Lane(grid, false, false), Lane(grid, false, true)}, q,
                                 swing_shape(p, q, 2));
}

std::unique_ptr<Schedule> make_all_reduce_swing_2d(int32_t p, const Layout& layout) {
  const Grid grid = layout.rows_and_columns();
  if (!is_power_of_two(grid.rows) || !is_power_of_two(grid.columns)) {
    ROSTAM_THROW(ConfigError, "all_reduce by swing_2d on " << grid.rows << " x " << grid.columns
                                                           << " ranks; both must be powers of two");
  }
  std::vector<Lane> lanes;
  for (const bool is_mirrored : {false, true}) {
    for (const bool columns_first : {false, true}) lanes.emplace_back(grid, columns_first, is_mirrored);
  }
  return std::make_unique<Swing>(std::move(lanes), p, swing_shape(p, p, 4));
}

}  // namespace rostam::collectives
