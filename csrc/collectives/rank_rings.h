// RankRings: directed rings through all ranks in orders of their own, an equal part of the buffer each, all at once:
// steps x (alpha + ceil(S / k p) / B) for k rings whose steps share no link, where B is what a ring gets.
// Chunks are numbered k * rank + ring; rank r owns those from k r on.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/ring_chunks.h"
#include "collectives/schedule.h"

namespace rostam::collectives {

using ChunkRule = RingChunk (*)(int32_t position, int32_t step, int32_t n);

class RankRings : public Schedule {
 public:
  // orders: the ranks along each ring, 0..num_ranks-1 in any order, at least one ring. num_passes: times round a ring.
  RankRings(const std::vector<std::vector<int32_t>>& orders, int32_t num_passes, ChunkRule rule);

  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override;
  int64_t total_chunks_sent() const override { return int64_t{shape().num_chunks} * shape().num_steps; }
  int32_t num_receives(int32_t, int32_t) const override { return static_cast<int32_t>(rings_.size()); }

 private:
  // The rank at each position, and the position of each rank.
  struct Ring {
    std::vector<int32_t> rank_at;
    std::vector<int32_t> position;
  };

  ChunkRule rule_;
  std::vector<Ring> rings_;
};

// Orders of all ranks from those of one server's: servers one after the other, each in that order.
// Throws: ConfigError for an order that does not hold every rank of a server once, or servers that do not make up the
// ranks.
std::vector<std::vector<int32_t>> orders_over_servers(int32_t num_ranks, const std::vector<std::vector<int32_t>>& own);

}  // namespace rostam::collectives
