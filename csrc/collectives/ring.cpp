// Ring algorithms, one chunk a step, on ranks 0 -> 1 -> ... -> p-1 -> 0 or, where the ranks stand on m > 1 servers of
// g ranks with a NIC each, in g channels on parts of the buffer (ring_channels.h).
// One channel, c = ceil(S/p): all_reduce takes 2 (p-1) (alpha + c/B); reduce_scatter and all_gather half of it.
// g channels, c = ceil(S/gp): in every step a rank sends the chunks of g - 1 channels to the next rank of its server
// and one through its NIC, so all_reduce takes
//   2 (p-1) max(alpha_nic + c/B_nic, alpha_server + (g-1) c/B_server); the others half of it.
// Given orders of ranks (Layout::rings) are the channels instead, of bidirectional_ring too: between them they use both
// directions of every link (rank_rings.h).
// bidirectional_ring: the same rings both ways on half the buffer each: 2 (p-1) (alpha + ceil(S/2p) / B_if).
#include "collectives/rank_rings.h"
#include "collectives/ring_channels.h"
#include "collectives/ring_chunks.h"
#include "collectives/schedule.h"

namespace rostam::collectives {

namespace {

Shape ring_shape(int32_t p, const RingChannels& channels, int32_t num_passes, int32_t num_ways) {
  Shape shape;
  shape.num_ranks = p;
  shape.num_steps = num_passes * (p - 1);
  shape.num_chunks = num_ways * channels.num_channels() * p;
  shape.has_ordered_arrivals = num_ways == 1 && channels.num_channels() == 1;
  shape.has_fixed_peers = true;
  return shape;
}

class Ring : public Schedule {
 public:
  // num_passes: times round the ring. num_ways: 2 for rings both ways.
  Ring(int32_t p, RingChannels channels, int32_t num_passes, int32_t num_ways, ChunkRule rule)
      : Schedule(ring_shape(p, channels, num_passes, num_ways)), channels_(std::move(channels)), rule_(rule) {}

  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    send_ahead(rank, step, out);
    if (is_both_ways()) send_back(rank, step, out);
  }
  int64_t total_chunks_sent() const override { return int64_t{shape().num_chunks} * shape().num_steps; }
  int32_t num_receives(int32_t rank, int32_t) const override {
    // Of the channels ahead one comes through the rank's NIC, those back into it through that of the channel ahead out.
    const int32_t ahead = count(channels_.entering(rank) >= 0);
    return is_both_ways() ? ahead + count(channels_.leaving(rank) >= 0) : ahead;
  }

 private:
  bool is_both_ways() const { return shape().num_chunks > channels_.num_channels() * shape().num_ranks; }

  // Messages of one way of which one, or none, goes between servers.
  int32_t count(bool crosses) const { return crosses ? 1 + (channels_.num_channels() > 1) : 1; }

  // Chunks are numbered num_channels * rank + channel: rank r owns those from num_channels * r on.
  void send_ahead(int32_t rank, int32_t step, std::vector<Transfer>& out) const {
    const int32_t p = shape().num_ranks, leaving = channels_.leaving(rank);
    const auto transfer = [&](int32_t channel) {
      const int32_t position = channels_.position(rank, channel);
      const RingChunk passed = rule_(position, step, p);
      const int32_t chunk = channels_.num_channels() * channels_.rank_at(passed.chunk, channel) + channel;
      return Transfer{channels_.rank_at(wrap(position + 1, p), channel), chunk, chunk, 1, passed.reduces};
    };
    append(leaving, transfer, out);
  }

  // The other half of the buffer runs the mirrored rings: position k plays position p - 1 - k.
  void send_back(int32_t rank, int32_t step, std::vector<Transfer>& out) const {
    const int32_t p = shape().num_ranks, leaving = channels_.entering(rank);
    const auto transfer = [&](int32_t channel) {
      const int32_t position = channels_.position(rank, channel);
      const RingChunk passed = rule_(p - 1 - position, step, p);
      const int32_t chunk = channels_.num_channels() * (p + passed.chunk) + channel;
      return Transfer{channels_.rank_at(wrap(position - 1, p), channel), chunk, chunk, 1, passed.reduces};
    };
    append(leaving, transfer, out);
  }

  // All channels that stay in the server in one message, then the one that leaves it.
  template <class MakeTransfer>
  void append(int32_t leaving, const MakeTransfer& transfer, std::vector<Transfer>& out) const {
    bool is_first = true;
    for (int32_t channel = 0; channel < channels_.num_channels(); ++channel) {
      if (channel == leaving) continue;
      out.push_back(transfer(channel));
      out.back().joins_last = !is_first;
      is_first = false;
    }
    if (leaving >= 0) out.push_back(transfer(leaving));
  }

  RingChannels channels_;
  ChunkRule rule_;
};

std::unique_ptr<Schedule> make_ring(int32_t p, const Layout& layout, int32_t num_passes, int32_t num_ways,
                                    ChunkRule rule) {
  if (!layout.rings.empty()) {
    return std::make_unique<RankRings>(orders_over_servers(p, layout.rings), num_passes, rule);
  }
  return std::make_unique<Ring>(p, RingChannels(p, layout.group_sizes), num_passes, num_ways, rule);
}

}  // namespace

std::unique_ptr<Schedule> make_all_reduce_ring(int32_t p, const Layout& layout) {
  return make_ring(p, layout, 2, 1, &all_reduce_chunk);
}
std::unique_ptr<Schedule> make_all_reduce_bidirectional_ring(int32_t p, const Layout& layout) {
  return make_ring(p, layout, 2, 2, &all_reduce_chunk);
}
std::unique_ptr<Schedule> make_reduce_scatter_ring(int32_t p, const Layout& layout) {
  return make_ring(p, layout, 1, 1, &reduce_scatter_chunk);
}
std::unique_ptr<Schedule> make_all_gather_ring(int32_t p, const Layout& layout) {
  return make_ring(p, layout, 1, 1, &all_gather_chunk);
}

}  // namespace rostam::collectives
