#include "collectives/hamiltonian.h"

#include <algorithm>
#include <numeric>

#include "sim/errors.h"

namespace rostam::collectives {

namespace {

bool has_cycles(const Grid& grid) {
  return grid.rows % grid.columns == 0 && std::gcd(grid.rows, grid.columns - 1) == 1;
}

[[noreturn]] void refuse(const Grid& grid) {
  const int32_t r = std::max(grid.rows, grid.columns), c = std::min(grid.rows, grid.columns);
  if (r % c != 0) {
    ROSTAM_THROW(ConfigError, "no pair of disjoint Hamiltonian cycles on a grid of "
                                  << grid.rows << " x " << grid.columns
                                  << ": they need r = k c, one size a multiple of the other, and gcd(r, c - 1) = 1");
  }
  ROSTAM_THROW(ConfigError, "no pair of disjoint Hamiltonian cycles on a grid of "
                                << grid.rows << " x " << grid.columns << ": they need gcd(r, c - 1) = 1, and gcd(" << r
                                << ", " << c - 1 << ") is " << std::gcd(r, c - 1));
}

}  // namespace

HamiltonianCycles hamiltonian_cycles(const Grid& grid) {
  const Grid turned{grid.columns, grid.rows};
  const bool is_turned = !has_cycles(grid);
  if (is_turned && !has_cycles(turned)) refuse(grid);
  const int32_t r = is_turned ? turned.rows : grid.rows, c = is_turned ? turned.columns : grid.columns;
  const auto rank_at = [&](int64_t row, int64_t column) {
    return static_cast<int32_t>(is_turned ? column * grid.columns + row : row * grid.columns + column);
  };
  HamiltonianCycles cycles;
  for (int64_t x1 = 0; x1 < r; ++x1) {
    for (int64_t x0 = 0; x0 < c; ++x0) {
      const int64_t s = x0 + (c - 1) * x1;
      cycles.red.push_back(rank_at(x1, s % c));
      cycles.green.push_back(rank_at(s % r, x1 % c));
    }
  }
  return cycles;
}

}  // namespace rostam::collectives
