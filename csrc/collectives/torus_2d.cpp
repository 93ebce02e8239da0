// torus_2d and torus_2d_unidirectional: all-reduce on an r x c torus by two transposed copies of one algorithm on half
// the buffer each. Copy one: ring reduce-scatter on the rows, ring all-reduce on the columns, ring all-gather on the
// rows; copy two the same with rows and columns exchanged. torus_2d runs every ring both ways on half of it (four
// interfaces busy), torus_2d_unidirectional one way (two).
// With L = 4 or 2 interfaces, u = ceil(S / (L p)) and one interface B_if a direction, on a square grid of n x n:
// 4 (n-1) alpha + 2 (n-1) (n + 1) u / B_if: about 4 sqrt(p) alpha + (2 S / L) (1 - 1/p) beta, as few bytes as any.
// On other grids the copies, which step together, are in different phases and leave links idle;
// csrc/analytic/closed_forms.h has the sum.
// A grid of one row or column is a ring. Source: HammingMesh V-A2, whose column term drops a factor 2.
#include "collectives/ring_chunks.h"
#include "collectives/schedule.h"

namespace rostam::collectives {

namespace {

Shape torus_shape(const Grid& grid, int32_t num_lanes) {
  Shape shape;
  shape.num_ranks = grid.rows * grid.columns;
  shape.num_steps = 2 * (grid.rows + grid.columns - 2);
  shape.num_chunks = num_lanes * shape.num_ranks;
  return shape;
}

// One part of the buffer on its way round: rings of `num_inner` ranks first and last, of `num_outer` in between.
struct Lane {
  int32_t num_inner = 0, num_outer = 0;
  int32_t inner = 0, outer = 0;  // this rank's places, counted against the numbering where the lane runs backwards
};

// What a rank sends: to inner + 1 or to outer + 1, chunks of the lane's own p, block b of `num_outer` being what the
// ranks of inner place b reduce together.
struct LaneSend {
  bool is_inner = true;
  int32_t chunk = 0;
  int32_t num_chunks = 1;
  bool reduces = false;
};

LaneSend lane_send(const Lane& lane, int32_t step) {
  const int32_t num_scatter = lane.num_inner - 1, num_reduce = 2 * (lane.num_outer - 1);
  if (step < num_scatter) {
    const RingChunk block = reduce_scatter_chunk(lane.inner, step, lane.num_inner);
    return {true, block.chunk * lane.num_outer, lane.num_outer, true};
  }
  if (step < num_scatter + num_reduce) {
    const RingChunk part = all_reduce_chunk(lane.outer, step - num_scatter, lane.num_outer);
    return {false, lane.inner * lane.num_outer + part.chunk, 1, part.reduces};
  }
  const RingChunk block = all_gather_chunk(lane.inner, step - num_scatter - num_reduce, lane.num_inner);
  return {true, block.chunk * lane.num_outer, lane.num_outer, false};
}

class Torus2d : public Schedule {
 public:
  Torus2d(const Grid& grid, int32_t num_lanes) : Schedule(torus_shape(grid, num_lanes)), grid_(grid) {}

  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    const int32_t num_lanes = shape().num_chunks / shape().num_ranks;
    for (int32_t lane = 0; lane < num_lanes; ++lane) out.push_back(transfer(rank, step, lane));
  }
  int64_t total_chunks_sent() const override { return int64_t{2} * shape().num_chunks * (shape().num_ranks - 1); }
  int32_t num_receives(int32_t, int32_t) const override { return shape().num_chunks / shape().num_ranks; }

 private:
  // Lanes 0 and 1 are the copies on rows first and on columns first; 2 and 3 the same backwards.
  Transfer transfer(int32_t rank, int32_t step, int32_t number) const {
    const bool is_rows_first = number % 2 == 0, is_backwards = number >= 2;
    const int32_t row = rank / grid_.columns, column = rank % grid_.columns;
    Lane lane{grid_.columns, grid_.rows, column, row};
    if (!is_rows_first) lane = {grid_.rows, grid_.columns, row, column};
    if (is_backwards) {
      lane.inner = lane.num_inner - 1 - lane.inner;
      lane.outer = lane.num_outer - 1 - lane.outer;
    }
    const LaneSend send = lane_send(lane, step);
    const int32_t ahead = is_backwards ? -1 : 1;
    const bool moves_in_row = send.is_inner == is_rows_first;
    const int32_t peer = moves_in_row ? row * grid_.columns + wrap(column + ahead, grid_.columns)
                                      : wrap(row + ahead, grid_.rows) * grid_.columns + column;
    const int32_t chunk = number * shape().num_ranks + send.chunk;
    return {peer, chunk, chunk, send.num_chunks, send.reduces};
  }

  Grid grid_;
};

}  // namespace

std::unique_ptr<Schedule> make_all_reduce_torus_2d(int32_t, const Layout& layout) {
  return std::make_unique<Torus2d>(layout.grid, 4);
}
std::unique_ptr<Schedule> make_all_reduce_torus_2d_unidirectional(int32_t, const Layout& layout) {
  return std::make_unique<Torus2d>(layout.grid, 2);
}

}  // namespace rostam::collectives
