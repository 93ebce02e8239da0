// RingChannels: directed rings through all ranks of a group that between them use the NICs of all ranks of a server.
// Channel c enters a server at its rank c, goes round the server's ranks and leaves at rank c - 1 (MODEL 6a); every
// other server it takes the other way round, from rank c - 1 to rank c, so that between servers it stays on one rail.
// Example, two servers of two ranks: channel 0 is 0 1 | 3 2, channel 1 is 1 0 | 2 3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rostam::collectives {

class RingChannels {
 public:
  // `sizes`: ranks of each server, consecutive; one number stands for equal servers.
  // There are as many channels as the smallest server has ranks, and one where there is only one server.
  // Throws: ConfigError if the sizes do not add up to num_ranks.
  RingChannels(int32_t num_ranks, const std::vector<int32_t>& sizes);

  int32_t num_channels() const { return num_channels_; }
  int32_t position(int32_t rank, int32_t channel) const;
  int32_t rank_at(int32_t position, int32_t channel) const;
  // The channel that enters, or leaves, the server at this rank's NIC; -1 if none does.
  int32_t entering(int32_t rank) const { return channel_at(rank, true); }
  int32_t leaving(int32_t rank) const { return channel_at(rank, false); }

 private:
  int32_t channel_at(int32_t rank, bool is_entering) const;
  int32_t server_size(std::size_t server) const { return first_[server + 1] - first_[server]; }
  static bool is_reversed(std::size_t server) { return server % 2 == 1; }

  int32_t num_channels_ = 1;
  std::vector<int32_t> first_;      // of each server, and the number of ranks
  std::vector<int32_t> server_of_;  // each rank's
};

}  // namespace rostam::collectives
