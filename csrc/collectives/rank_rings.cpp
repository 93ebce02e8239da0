#include "collectives/rank_rings.h"

#include <algorithm>
#include <numeric>

#include "sim/errors.h"

namespace rostam::collectives {

namespace {

Shape rings_shape(int32_t p, int32_t num_rings, int32_t num_passes) {
  Shape shape;
  shape.num_ranks = p;
  shape.num_steps = num_passes * (p - 1);
  shape.num_chunks = num_rings * p;
  shape.has_ordered_arrivals = num_rings == 1;
  shape.has_fixed_peers = true;
  return shape;
}

}  // namespace

RankRings::RankRings(const std::vector<std::vector<int32_t>>& orders, int32_t num_passes, ChunkRule rule)
    : Schedule(rings_shape(static_cast<int32_t>(orders.at(0).size()), static_cast<int32_t>(orders.size()), num_passes)),
      rule_(rule) {
  for (const std::vector<int32_t>& order : orders) {
    Ring ring{order, std::vector<int32_t>(order.size())};
    for (size_t k = 0; k < order.size(); ++k) ring.position[static_cast<size_t>(order[k])] = static_cast<int32_t>(k);
    rings_.push_back(std::move(ring));
  }
}

void RankRings::sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const {
  const int32_t p = shape().num_ranks, num_rings = static_cast<int32_t>(rings_.size());
  for (int32_t k = 0; k < num_rings; ++k) {
    const Ring& ring = rings_[static_cast<size_t>(k)];
    const int32_t position = ring.position[static_cast<size_t>(rank)];
    const RingChunk passed = rule_(position, step, p);
    const int32_t chunk = num_rings * ring.rank_at[static_cast<size_t>(passed.chunk)] + k;
    out.push_back({ring.rank_at[static_cast<size_t>(wrap(position + 1, p))], chunk, chunk, 1, passed.reduces});
  }
}

std::vector<std::vector<int32_t>> orders_over_servers(int32_t num_ranks, const std::vector<std::vector<int32_t>>& own) {
  std::vector<std::vector<int32_t>> orders;
  for (const std::vector<int32_t>& order : own) {
    std::vector<int32_t> sorted = order, all(order.size());
    std::sort(sorted.begin(), sorted.end());
    std::iota(all.begin(), all.end(), 0);
    const auto size = static_cast<int32_t>(order.size());
    if (size == 0 || num_ranks % size != 0 || sorted != all) {
      ROSTAM_THROW(ConfigError, "an order of " << size << " ranks for the rings of " << num_ranks
                                               << "; it must hold each rank of a server once, and servers of that size"
                                                  " make up the ranks");
    }
    orders.emplace_back();
    for (int32_t first = 0; first < num_ranks; first += size) {
      for (const int32_t rank : order) orders.back().push_back(first + rank);
    }
  }
  return orders;
}

}  // namespace rostam::collectives
