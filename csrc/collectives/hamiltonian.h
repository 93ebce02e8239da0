// Two edge-disjoint Hamiltonian cycles of an r x c torus, ranks numbered row-major.
// Example: hamiltonian_cycles({4, 4}).red[k] is the k-th rank on the first cycle.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/schedule.h"

namespace rostam::collectives {

struct HamiltonianCycles {
  std::vector<int32_t> red;
  std::vector<int32_t> green;
};

// The cycles of the grid or, where they exist only there, of its transpose, in the ranks of the grid given:
// for X = 0 .. rc - 1 with x1 = X div c, x0 = X mod c, s = x0 + (c - 1) x1:
// red(X) = (x1 mod r, s mod c), green(X) = (s mod r, x1 mod c). A dimension of 2 is two parallel cables; each
// cycle takes one of them.
// Throws: ConfigError unless r = k c with k >= 1 and gcd(r, c - 1) = 1, one way round or the other.
// Source: Bae, AlBdaiwi, Bose 2004, as in HammingMesh V-A2 (listing 1, completed).
HamiltonianCycles hamiltonian_cycles(const Grid& grid);

}  // namespace rostam::collectives
