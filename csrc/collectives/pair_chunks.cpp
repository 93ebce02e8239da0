#include "collectives/pair_chunks.h"

#include <algorithm>

#include "sim/errors.h"
#include "sim/interrupt.h"

namespace rostam::collectives {

PairChunks pair_chunks(const Schedule& schedule) {
  const Shape& shape = schedule.shape();
  PairChunks pairs;
  std::vector<int64_t> to(static_cast<size_t>(shape.num_ranks), 0);
  std::vector<int32_t> peers;
  std::vector<Transfer> transfers;
  InterruptPoll poll;
  int64_t total = 0;
  for (int32_t rank = 0; rank < shape.num_ranks; ++rank) {
    for (int32_t step = 0; step < shape.num_steps; ++step) {
      poll();
      transfers.clear();
      schedule.sends(rank, step, transfers);
      for (const Transfer& transfer : transfers) {
        int64_t& chunks = to[static_cast<size_t>(transfer.peer)];
        if (chunks == 0) peers.push_back(transfer.peer);
        chunks += transfer.num_chunks;
      }
    }
    std::sort(peers.begin(), peers.end());
    for (const int32_t peer : peers) {
      pairs.src.push_back(rank);
      pairs.dst.push_back(peer);
      pairs.num_chunks.push_back(to[static_cast<size_t>(peer)]);
      total += to[static_cast<size_t>(peer)];
      to[static_cast<size_t>(peer)] = 0;
    }
    peers.clear();
  }
  ROSTAM_CHECK(total == schedule.total_chunks_sent(),
               "ranks send " << total << " chunks, the closed form is " << schedule.total_chunks_sent());
  return pairs;
}

}  // namespace rostam::collectives
