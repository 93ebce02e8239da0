// NCCL's tree all-reduce as a model of bandwidth: one step in which every link carries what a pipeline in many small
// chunks carries on it. Its depth is no part of the schedule: 2 (g-1) hops inside servers and 2 ceil(log2 m) between
// them go with the start-up (collectives/transport.py). The transfers name whole chunks, and their contents are not
// followed.
// m servers, n channels (one for each rank of the smallest server, or for each ring of direct links), S/n each. Inside
// a server a channel is a chain of its g ranks: partial sums go up it to its head, results down again, S/n over each of
// its g-1 links in each direction. Between servers its heads are two binary trees with half of S/n each, and a server
// inside one is a leaf of the other. The busiest sends up and to two children in the one and up in the other,
// 4 halves; of three servers 3, of two 2. All send here what the busiest does, so that all servers are alike:
//   max(alpha + 2 (g-1)/g S / B_server, alpha_nic + min(m, 4)/2 S/g / B_nic), where every rank has a NIC.
// Source: Sanders, Speck, Traeff, Two-tree algorithms for full bandwidth broadcast, reduction and scan (2009); NCCL
// src/graph/trees.cc.
#include <algorithm>
#include <numeric>

#include "collectives/rank_rings.h"
#include "collectives/schedule.h"
#include "collectives/wrap.h"
#include "sim/errors.h"

namespace rostam::collectives {

namespace {

Shape tree_shape(int32_t p, int32_t num_channels) {
  Shape shape;
  shape.num_ranks = p;
  shape.num_steps = p > 1;
  shape.num_chunks = 2 * num_channels;  // a half of the buffer of each channel
  return shape;
}

class PipelinedTree : public Schedule {
 public:
  // chains: of each channel the places of its chain, from its head on, for servers of their size; empty: channel c
  // begins at place c and goes round.
  PipelinedTree(int32_t p, int32_t num_channels, std::vector<int32_t> sizes, std::vector<std::vector<int32_t>> chains)
      : Schedule(tree_shape(p, num_channels)),
        num_channels_(num_channels),
        sizes_(std::move(sizes)),
        chains_(std::move(chains)) {
    for (const int32_t size : sizes_) {
      server_of_.insert(server_of_.end(), static_cast<size_t>(size), static_cast<int32_t>(first_.size()));
      first_.push_back(first_.empty() ? 0 : first_.back() + sizes_[first_.size() - 1]);
    }
  }

  void sends(int32_t rank, int32_t, std::vector<Transfer>& out) const override {
    std::vector<int32_t> halves(static_cast<size_t>(size_at(rank)), 0);  // to each place of the server
    int32_t num_heads = 0;
    for (int32_t channel = 0; channel < num_channels_; ++channel) {
      const int32_t at = position(rank, channel), last = size_at(rank) - 1;
      if (at > 0) halves[static_cast<size_t>(place(rank, at - 1, channel))] += 2;
      if (at < last) halves[static_cast<size_t>(place(rank, at + 1, channel))] += 2;
      num_heads += at == 0;
    }
    for (int32_t to = 0; to < size_at(rank); ++to) {
      const int32_t count = halves[static_cast<size_t>(to)];
      if (count > 0) out.push_back({first_at(rank) + to, 0, 0, count, true});
    }
    if (num_servers() == 1) return;
    for (int32_t channel = 0; channel < num_channels_ && num_heads > 0; ++channel) {
      if (position(rank, channel) != 0) continue;
      const auto next = static_cast<size_t>(wrap(server_of(rank) + 1, num_servers()));
      const int32_t head = first_[next] + (chains_.empty() ? channel : chains_[static_cast<size_t>(channel)][0]);
      out.push_back({head, 2 * channel, 2 * channel, halves_between(), true});
    }
  }

  int64_t total_chunks_sent() const override {
    const int64_t links = int64_t{shape().num_ranks} - num_servers();  // of all chains of a channel
    const int64_t between = num_servers() > 1 ? int64_t{num_servers()} * halves_between() : 0;
    return shape().num_ranks > 1 ? num_channels_ * (links * 4 + between) : 0;
  }

  // What goes between two ranks of a server, and between heads, goes the other way round as well.
  int32_t num_receives(int32_t rank, int32_t step) const override {
    std::vector<Transfer> own;
    sends(rank, step, own);
    return static_cast<int32_t>(own.size());
  }

 private:
  int32_t num_servers() const { return static_cast<int32_t>(sizes_.size()); }
  int32_t halves_between() const { return std::min(num_servers(), 4); }
  int32_t server_of(int32_t rank) const { return server_of_[static_cast<size_t>(rank)]; }
  int32_t first_at(int32_t rank) const { return first_[static_cast<size_t>(server_of(rank))]; }
  int32_t size_at(int32_t rank) const { return sizes_[static_cast<size_t>(server_of(rank))]; }

  // Where the rank stands in the chain of a channel, and which place of its server stands somewhere.
  int32_t position(int32_t rank, int32_t channel) const {
    const int32_t own = rank - first_at(rank);
    if (chains_.empty()) return wrap(own - channel, size_at(rank));
    const std::vector<int32_t>& chain = chains_[static_cast<size_t>(channel)];
    return static_cast<int32_t>(std::find(chain.begin(), chain.end(), own) - chain.begin());
  }
  int32_t place(int32_t rank, int32_t at, int32_t channel) const {
    if (chains_.empty()) return wrap(at + channel, size_at(rank));
    return chains_[static_cast<size_t>(channel)][static_cast<size_t>(at)];
  }

  int32_t num_channels_;
  std::vector<int32_t> sizes_;
  std::vector<std::vector<int32_t>> chains_;
  std::vector<int32_t> first_;      // rank of each server
  std::vector<int32_t> server_of_;  // each rank's
};

}  // namespace

std::unique_ptr<Schedule> make_all_reduce_tree(int32_t p, const Layout& layout) {
  std::vector<int32_t> sizes = layout.group_sizes;
  if (!layout.rings.empty()) {
    const std::vector<std::vector<int32_t>> orders = orders_over_servers(p, layout.rings);  // checks them
    sizes = {static_cast<int32_t>(layout.rings[0].size())};
  }
  if (sizes.size() == 1 && sizes[0] > 0 && p % sizes[0] == 0) {
    sizes.assign(static_cast<size_t>(p / sizes[0]), sizes[0]);
  }
  const bool are_positive = std::all_of(sizes.begin(), sizes.end(), [](int32_t size) { return size > 0; });
  if (!are_positive || std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) != p) {
    ROSTAM_THROW(ConfigError, "servers that do not make up the " << p
                                                                 << " ranks of a tree; give the ranks of each server, "
                                                                    "or one number that divides them");
  }
  const int32_t num_channels =
      layout.rings.empty() ? *std::min_element(sizes.begin(), sizes.end()) : static_cast<int32_t>(layout.rings.size());
  return std::make_unique<PipelinedTree>(p, num_channels, std::move(sizes), layout.rings);
}

}  // namespace rostam::collectives
