// broadcast and reduce by ring: a chain from the root, rank 0, through all ranks, or to it, on which n pieces of the
// buffer go one behind the other, as NCCL's do round its rings. A rank passes piece k on when it has come, and latency
// counts only while the chain fills: with t = ceil(S/n) / B
//   (p-1) (alpha + t) + (n-1) t.
// Where a server has a NIC for each of its ranks, or direct links decide (rank_rings.h), there is a chain in each of c
// channels with 1/c of the buffer, all beginning at the root: each rank works at most kLead steps ahead of what it
// awaits, since channels pass the same ranks in different orders, and the rank at place j of a chain passes piece k on
// in step (kLead + 1) j + k: about ((kLead + 1) (p-2) + n) max(t, (alpha + t) / (kLead + 1)) with t of S/nc.
// Source: NCCL src/device/broadcast.h, reduce.h; src/graph/tuning.cc takes base, hops of a ring and S / bus bandwidth.
// kLead: own; of 0 to 6 the one whose time is nearest to the least over 16 MiB, 128 MiB and 1 GiB on 4 and 16 DGX H100
// (rostam collective machine=dgx_h100 machine.servers=4 collective=broadcast algorithm=ring): at most 11% above it, 0
// up to 61%, 1 32%, 3 15%, 4 19%, 6 35%.
#include <algorithm>
#include <cstddef>

#include "collectives/rank_rings.h"
#include "collectives/ring_channels.h"
#include "collectives/schedule.h"

namespace rostam::collectives {

namespace {

constexpr int32_t kLead = 2;

// Ranks along each chain.
using Orders = std::vector<std::vector<int32_t>>;

Shape chain_shape(const Orders& orders, int32_t num_pieces) {
  const auto p = static_cast<int32_t>(orders[0].size());
  Shape shape;
  shape.num_ranks = p;
  shape.lead = orders.size() > 1 ? kLead : 0;
  shape.num_steps = p > 1 ? (shape.lead + 1) * (p - 2) + num_pieces + shape.lead : 0;
  shape.num_chunks = static_cast<int32_t>(orders.size()) * num_pieces;
  shape.max_peers = static_cast<int32_t>(orders.size());
  return shape;
}

class Chain : public Schedule {
 public:
  Chain(Orders orders, int32_t num_pieces, bool reduces)
      : Schedule(chain_shape(orders, num_pieces)), orders_(std::move(orders)), reduces_(reduces) {
    for (const std::vector<int32_t>& order : orders_) {
      places_.emplace_back(order.size());
      for (size_t k = 0; k < order.size(); ++k) places_.back()[static_cast<size_t>(order[k])] = static_cast<int32_t>(k);
    }
  }

  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    const size_t first = out.size();
    for (size_t channel = 0; channel < orders_.size(); ++channel) {
      const int32_t place = place_of(rank, channel), piece = piece_at(place, step);
      if (piece < 0) continue;
      const int32_t chunk = piece * static_cast<int32_t>(orders_.size()) + static_cast<int32_t>(channel);
      out.push_back({orders_[channel][static_cast<size_t>(place) + 1], chunk, chunk, 1, reduces_});
    }
    // Channels to the same peer in one message.
    std::stable_sort(out.begin() + static_cast<std::ptrdiff_t>(first), out.end(),
                     [](const Transfer& a, const Transfer& b) { return a.peer < b.peer; });
    for (size_t k = first + 1; k < out.size(); ++k) out[k].joins_last = out[k].peer == out[k - 1].peer;
  }

  // While all ranks are busy every step is like the next.
  int32_t next_unlike(int32_t step) const override {
    const int32_t full = (shape().lead + 1) * std::max(0, shape().num_ranks - 2);
    return full <= step && step < num_pieces() ? num_pieces() : step + 1;
  }
  int64_t total_chunks_sent() const override { return int64_t{shape().num_chunks} * (shape().num_ranks - 1); }
  int32_t num_receives(int32_t rank, int32_t step) const override {
    std::vector<int32_t> senders;
    for (size_t channel = 0; channel < orders_.size(); ++channel) {
      const int32_t place = place_of(rank, channel);
      if (place == 0 || piece_at(place - 1, step) < 0) continue;
      const int32_t sender = orders_[channel][static_cast<size_t>(place) - 1];
      if (std::find(senders.begin(), senders.end(), sender) == senders.end()) senders.push_back(sender);
    }
    return static_cast<int32_t>(senders.size());
  }

 private:
  int32_t num_pieces() const { return shape().num_chunks / static_cast<int32_t>(orders_.size()); }
  int32_t place_of(int32_t rank, size_t channel) const { return places_[channel][static_cast<size_t>(rank)]; }

  // The piece that the rank at a place of a chain passes on in a step, -1 for none.
  int32_t piece_at(int32_t place, int32_t step) const {
    const int32_t piece = step - (shape().lead + 1) * place;
    return place < shape().num_ranks - 1 && piece >= 0 && piece < num_pieces() ? piece : -1;
  }

  Orders orders_;
  std::vector<std::vector<int32_t>> places_;  // of each rank, by channel
  bool reduces_;
};

// Rings through all ranks, each from the root on.
Orders orders_from_root(int32_t p, const Layout& layout) {
  Orders orders;
  if (layout.rings.empty()) {
    const RingChannels channels(p, layout.group_sizes);
    for (int32_t channel = 0; channel < channels.num_channels(); ++channel) {
      orders.emplace_back();
      for (int32_t k = 0; k < p; ++k) orders.back().push_back(channels.rank_at(k, channel));
    }
  } else {
    orders = orders_over_servers(p, layout.rings);
  }
  for (std::vector<int32_t>& order : orders) {
    std::rotate(order.begin(), std::find(order.begin(), order.end(), 0), order.end());
  }
  return orders;
}

}  // namespace

std::unique_ptr<Schedule> make_broadcast_ring(int32_t p, const Layout& layout) {
  return std::make_unique<Chain>(orders_from_root(p, layout), layout.num_pieces, false);
}

// The same chains from their far ends to the root.
std::unique_ptr<Schedule> make_reduce_ring(int32_t p, const Layout& layout) {
  Orders orders = orders_from_root(p, layout);
  for (std::vector<int32_t>& order : orders) std::reverse(order.begin(), order.end());
  return std::make_unique<Chain>(std::move(orders), layout.num_pieces, true);
}

}  // namespace rostam::collectives
