// dual_hamiltonian_rings: four directed rings, both ways round each of two edge-disjoint Hamiltonian cycles of the
// r x c torus (hamiltonian.h), a quarter of the buffer each, so that all four ports are busy at once (rank_rings.h).
// all_reduce: 2 (p-1) (alpha + ceil(S/4p) / B_if), B_if one of four interfaces: 2 p alpha + (S/2) beta for large p;
// reduce_scatter and all_gather: half of it. Source: HammingMesh V-A2.
#include "collectives/hamiltonian.h"
#include "collectives/rank_rings.h"

namespace rostam::collectives {

namespace {

std::unique_ptr<Schedule> make_rings(const Grid& grid, int32_t num_passes, ChunkRule rule) {
  const HamiltonianCycles cycles = hamiltonian_cycles(grid);
  const std::vector<int32_t> red_back(cycles.red.rbegin(), cycles.red.rend());
  const std::vector<int32_t> green_back(cycles.green.rbegin(), cycles.green.rend());
  const std::vector<std::vector<int32_t>> orders = {cycles.red, red_back, cycles.green, green_back};
  return std::make_unique<RankRings>(orders, num_passes, rule);
}

}  // namespace

std::unique_ptr<Schedule> make_all_reduce_dual_hamiltonian_rings(int32_t, const Layout& layout) {
  return make_rings(layout.rows_and_columns(), 2, &all_reduce_chunk);
}
std::unique_ptr<Schedule> make_reduce_scatter_dual_hamiltonian_rings(int32_t, const Layout& layout) {
  return make_rings(layout.rows_and_columns(), 1, &reduce_scatter_chunk);
}
std::unique_ptr<Schedule> make_all_gather_dual_hamiltonian_rings(int32_t, const Layout& layout) {
  return make_rings(layout.rows_and_columns(), 1, &all_gather_chunk);
}

}  // namespace rostam::collectives
