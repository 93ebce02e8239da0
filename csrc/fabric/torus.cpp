// torus: a wrapped grid of any number of dimensions whose accelerators forward; no switches.
// Each dimension of size > 1 gives an accelerator two ports; a dimension of size 2 is two parallel cables.
// Numbering: row-major within a board, boards row-major (MODEL C11). Distance: sum of the shorter ways round.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "fabric/registry.h"

namespace rostam::fabric {

namespace {

class Grid : public DistanceFunction {
 public:
  Grid(std::vector<int32_t> dims, const std::vector<int32_t>& board) : dims_(std::move(dims)) {
    int64_t count = 1;
    for (const int32_t size : dims_) count *= size;
    coordinates_.reserve(static_cast<size_t>(count) * dims_.size());
    number_of_.resize(static_cast<size_t>(count));
    for (int32_t id = 0; id < count; ++id) place(id, board);
  }

  int32_t num_accelerators() const { return static_cast<int32_t>(number_of_.size()); }
  const std::vector<int32_t>& dims() const { return dims_; }

  // The accelerator one step up along `dim`.
  int32_t neighbour(int32_t accelerator, size_t dim) const {
    size_t cell = 0;
    for (size_t d = 0; d < dims_.size(); ++d) {
      const int32_t x = coordinate(accelerator, d) + (d == dim ? 1 : 0);
      cell = cell * static_cast<size_t>(dims_[d]) + static_cast<size_t>(x % dims_[d]);
    }
    return number_of_[cell];
  }

  // The accelerator as far down along `dim` from the first as this one is up.
  int32_t mirrored(int32_t accelerator, size_t dim) const {
    size_t cell = 0;
    for (size_t d = 0; d < dims_.size(); ++d) {
      const int32_t x = coordinate(accelerator, d);
      cell = cell * static_cast<size_t>(dims_[d]) + static_cast<size_t>(d == dim ? (dims_[d] - x) % dims_[d] : x);
    }
    return number_of_[cell];
  }

  // The dimension of the link between two neighbours, and whether it joins the ends of a row.
  std::pair<int32_t, bool> step(int32_t from, int32_t to) const {
    for (size_t d = 0; d < dims_.size(); ++d) {
      const int32_t gap = std::abs(coordinate(from, d) - coordinate(to, d));
      if (gap != 0) return {static_cast<int32_t>(d), gap > 1};
    }
    return {0, false};
  }

  int32_t distance(int32_t vertex, int32_t accelerator) const override {
    int32_t hops = 0;
    for (size_t d = 0; d < dims_.size(); ++d) {
      const int32_t gap = std::abs(coordinate(vertex, d) - coordinate(accelerator, d));
      hops += std::min(gap, dims_[d] - gap);
    }
    return hops;
  }
  int32_t diameter() const override {
    int32_t hops = 0;
    for (const int32_t size : dims_) hops += size / 2;
    return hops;
  }

 private:
  int32_t coordinate(int32_t accelerator, size_t dim) const {
    return coordinates_[static_cast<size_t>(accelerator) * dims_.size() + dim];
  }

  // Appends the coordinates of the next accelerator: the position of its board plus that on its board.
  void place(int32_t id, const std::vector<int32_t>& board) {
    const size_t num_dims = dims_.size();
    std::vector<int32_t> at(num_dims, 0);
    int32_t rest = id;
    for (size_t d = num_dims; d-- > 0; rest /= board[d]) at[d] = rest % board[d];
    for (size_t d = num_dims; d-- > 0; rest /= dims_[d] / board[d]) at[d] += rest % (dims_[d] / board[d]) * board[d];
    size_t cell = 0;
    for (size_t d = 0; d < num_dims; ++d) cell = cell * static_cast<size_t>(dims_[d]) + static_cast<size_t>(at[d]);
    number_of_[cell] = id;
    coordinates_.insert(coordinates_.end(), at.begin(), at.end());
  }

  std::vector<int32_t> dims_;
  std::vector<int32_t> coordinates_;  // (accelerator, dimension)
  std::vector<int32_t> number_of_;    // row-major cell -> accelerator
};

// Dimension order: no dimension is left for an earlier one. Phase 2 d + 1 is behind the link of dimension d that wraps,
// a second virtual channel, so that the channels of a ring form no circle (Dally and Seitz 1987).
class DimensionOrder : public PathRule {
 public:
  explicit DimensionOrder(std::shared_ptr<const Grid> grid) : grid_(std::move(grid)) {}
  int32_t num_phases() const override { return 2 * static_cast<int32_t>(grid_->dims().size()); }
  int32_t next_phase(int32_t phase, const Link& link) const override {
    const auto [dim, is_wrap] = grid_->step(link.src, link.dst);
    if (dim < phase / 2) return -1;
    return 2 * dim + (is_wrap || (dim == phase / 2 && phase % 2 == 1) ? 1 : 0);
  }

 private:
  std::shared_ptr<const Grid> grid_;
};

}  // namespace

Blueprint design_torus(const Params& params) {
  const auto grid = std::make_shared<Grid>(params.integers("dims"), params.integers("board"));
  Blueprint plan;
  plan.name = "torus";
  plan.num_accelerators = grid->num_accelerators();
  plan.accelerators_forward = true;
  int32_t board_size = 1;
  for (const int32_t part : params.integers("board")) board_size *= part;
  if (board_size < plan.num_accelerators) plan.board_size = board_size;  // else there is one board: no parts to fail
  plan.forward_latency = params.time("switch_latency_s");
  for (int32_t a = 0; a < plan.num_accelerators; ++a) {
    for (size_t d = 0; d < grid->dims().size(); ++d) {
      if (grid->dims()[d] == 1) continue;
      plan.add_cable(a, grid->neighbour(a, d), params.rate("link_bandwidth_bytes_per_s"),
                     params.time("link_latency_s"));
    }
  }
  for (size_t d = 0; d < grid->dims().size(); ++d) {
    if (grid->dims()[d] == 1) continue;
    std::vector<int32_t> step, mirror;  // along the dimension
    for (int32_t a = 0; a < plan.num_accelerators; ++a) {
      step.push_back(grid->neighbour(a, d));
      mirror.push_back(grid->mirrored(a, d));
    }
    plan.symmetries.push_back(std::move(step));
    plan.symmetries.push_back(std::move(mirror));
  }
  plan.distance = grid;
  plan.turn_rule = plan.escape_rule = std::make_shared<DimensionOrder>(grid);
  return plan;
}

}  // namespace rostam::fabric
