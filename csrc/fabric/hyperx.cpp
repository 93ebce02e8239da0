// hyperx: switches on a grid of any number of dimensions, each joined to every other one of its rows in all dimensions.
// Numbering: switches row-major, the last dimension fastest. Distance: coordinates that differ, and a cable at each
// end. Source: Ahn, Binkert, Davis, McLaren, Schreiber, "HyperX: Topology, Routing, and Packaging of Efficient
// Large-Scale Networks", SC 2009, section 2, with one cable for each pair (K = 1).
#include <utility>

#include "fabric/registry.h"
#include "fabric/routers.h"

namespace rostam::fabric {

namespace {

int32_t product(const std::vector<int32_t>& dims) {
  int32_t count = 1;
  for (const int32_t size : dims) count *= size;
  return count;
}

class HammingDistance : public RouterDistance {
 public:
  HammingDistance(std::vector<int32_t> dims, int32_t per_switch)
      : RouterDistance(product(dims), per_switch), dims_(std::move(dims)) {}

  int32_t between(int32_t a, int32_t b) const override {
    int32_t apart = 0;
    for (size_t d = dims_.size(); d-- > 0; a /= dims_[d], b /= dims_[d]) apart += a % dims_[d] != b % dims_[d];
    return apart;
  }
  int32_t widest() const override {
    int32_t apart = 0;
    for (const int32_t size : dims_) apart += size > 1;
    return apart;
  }

  int32_t num_dims() const { return static_cast<int32_t>(dims_.size()); }
  // The last dimension in which two switches differ.
  int32_t dim_between(int32_t a, int32_t b) const {
    int32_t d = num_dims() - 1;
    while (d > 0 && a % dims_[static_cast<size_t>(d)] == b % dims_[static_cast<size_t>(d)]) {
      a /= dims_[static_cast<size_t>(d)];
      b /= dims_[static_cast<size_t>(d--)];
    }
    return d;
  }

 private:
  std::vector<int32_t> dims_;
};

// Dimension order: phase d has made its way in the dimensions before d.
class DimensionOrder : public PathRule {
 public:
  explicit DimensionOrder(std::shared_ptr<const HammingDistance> grid) : grid_(std::move(grid)) {}
  int32_t num_phases() const override { return grid_->num_dims() + 1; }
  int32_t next_phase(int32_t phase, const Link& link) const override {
    const int32_t first = grid_->num_accelerators();
    if (link.src < first || link.dst < first) return phase;
    const int32_t dim = grid_->dim_between(link.src - first, link.dst - first);
    return dim >= phase ? dim + 1 : -1;
  }

 private:
  std::shared_ptr<const HammingDistance> grid_;
};

}  // namespace

Blueprint design_hyperx(const Params& params) {
  const std::vector<int32_t> dims = params.integers("dims");
  const auto grid = std::make_shared<HammingDistance>(dims, params.integer("terminals"));
  Blueprint plan = design_routers("hyperx", grid->num_switches(), params.integer("terminals"), params);
  int32_t stride = grid->num_switches();
  for (const int32_t size : dims) {
    stride /= size;
    for (int32_t s = 0; s < grid->num_switches(); ++s) {
      for (int32_t up = 1; s / stride % size + up < size; ++up) {
        plan.add_cable(grid->vertex(s), grid->vertex(s + up * stride), params.rate("link_bandwidth_bytes_per_s"),
                       params.time("link_latency_s"));
      }
    }
  }
  plan.distance = grid;
  plan.turn_rule = std::make_shared<DimensionOrder>(grid);
  return plan;
}

}  // namespace rostam::fabric
