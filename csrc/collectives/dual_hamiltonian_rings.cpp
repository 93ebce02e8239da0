// dual_hamiltonian_rings: four directed rings, both ways round each of two edge-disjoint Hamiltonian cycles of the
// r x c torus (hamiltonian.h), a quarter of the buffer each, so that all four ports are busy at once.
// all_reduce: 2 (p-1) (alpha + ceil(S/4p) / B_if), B_if one of four interfaces: 2 p alpha + (S/2) beta for large p;
// reduce_scatter and all_gather: half of it.
// Chunks are numbered 4 * rank + ring; rank r owns the four from 4 r on. Source: HammingMesh V-A2.
#include <array>

#include "collectives/hamiltonian.h"
#include "collectives/ring_chunks.h"
#include "collectives/schedule.h"

namespace rostam::collectives {

namespace {

constexpr int32_t kNumRings = 4;

// A ring: the rank at each position, and the position of each rank.
struct Ring {
  std::vector<int32_t> rank_at;
  std::vector<int32_t> position;
};

Ring make_ring(std::vector<int32_t> rank_at) {
  Ring ring;
  ring.position.resize(rank_at.size());
  for (size_t k = 0; k < rank_at.size(); ++k) ring.position[static_cast<size_t>(rank_at[k])] = static_cast<int32_t>(k);
  ring.rank_at = std::move(rank_at);
  return ring;
}

Shape dual_shape(int32_t p, int32_t num_passes) {
  Shape shape;
  shape.num_ranks = p;
  shape.num_steps = num_passes * (p - 1);
  shape.num_chunks = kNumRings * p;
  shape.has_fixed_peers = true;
  return shape;
}

using ChunkRule = RingChunk (*)(int32_t position, int32_t step, int32_t n);

class DualHamiltonianRings : public Schedule {
 public:
  DualHamiltonianRings(const Grid& grid, int32_t num_passes, ChunkRule rule)
      : Schedule(dual_shape(grid.rows * grid.columns, num_passes)), rule_(rule) {
    HamiltonianCycles cycles = hamiltonian_cycles(grid);
    const std::vector<int32_t> red_back(cycles.red.rbegin(), cycles.red.rend());
    const std::vector<int32_t> green_back(cycles.green.rbegin(), cycles.green.rend());
    rings_ = {make_ring(std::move(cycles.red)), make_ring(red_back), make_ring(std::move(cycles.green)),
              make_ring(green_back)};
  }

  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    const int32_t p = shape().num_ranks;
    for (int32_t k = 0; k < kNumRings; ++k) {
      const Ring& ring = rings_[static_cast<size_t>(k)];
      const int32_t position = ring.position[static_cast<size_t>(rank)];
      const RingChunk passed = rule_(position, step, p);
      const int32_t chunk = kNumRings * ring.rank_at[static_cast<size_t>(passed.chunk)] + k;
      out.push_back({ring.rank_at[static_cast<size_t>(wrap(position + 1, p))], chunk, chunk, 1, passed.reduces});
    }
  }
  int64_t total_chunks_sent() const override { return int64_t{kNumRings} * shape().num_ranks * shape().num_steps; }
  int32_t num_receives(int32_t, int32_t) const override { return kNumRings; }

 private:
  ChunkRule rule_;
  std::array<Ring, kNumRings> rings_;
};

}  // namespace

std::unique_ptr<Schedule> make_all_reduce_dual_hamiltonian_rings(int32_t, const Layout& layout) {
  return std::make_unique<DualHamiltonianRings>(layout.grid, 2, &all_reduce_chunk);
}
std::unique_ptr<Schedule> make_reduce_scatter_dual_hamiltonian_rings(int32_t, const Layout& layout) {
  return std::make_unique<DualHamiltonianRings>(layout.grid, 1, &reduce_scatter_chunk);
}
std::unique_ptr<Schedule> make_all_gather_dual_hamiltonian_rings(int32_t, const Layout& layout) {
  return std::make_unique<DualHamiltonianRings>(layout.grid, 1, &all_gather_chunk);
}

}  // namespace rostam::collectives
