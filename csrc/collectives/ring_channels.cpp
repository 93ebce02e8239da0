#include "collectives/ring_channels.h"

#include <algorithm>
#include <numeric>

#include "collectives/wrap.h"
#include "sim/errors.h"

namespace rostam::collectives {

RingChannels::RingChannels(int32_t num_ranks, const std::vector<int32_t>& sizes) {
  std::vector<int32_t> servers = sizes;
  if (sizes.size() == 1 && sizes[0] > 0 && num_ranks % sizes[0] == 0) {
    servers.assign(static_cast<size_t>(num_ranks / sizes[0]), sizes[0]);
  }
  const bool are_positive = std::all_of(servers.begin(), servers.end(), [](int32_t size) { return size > 0; });
  if (!are_positive || std::accumulate(servers.begin(), servers.end(), int64_t{0}) != num_ranks) {
    ROSTAM_THROW(ConfigError, "servers that do not make up the " << num_ranks
                                                                 << " ranks of a ring; give the ranks of each server, "
                                                                    "or one number that divides them");
  }
  first_.push_back(0);
  for (size_t server = 0; server < servers.size(); ++server) {
    server_of_.insert(server_of_.end(), static_cast<size_t>(servers[server]), static_cast<int32_t>(server));
    first_.push_back(first_.back() + servers[server]);
  }
  if (servers.size() > 1) num_channels_ = *std::min_element(servers.begin(), servers.end());
}

int32_t RingChannels::position(int32_t rank, int32_t channel) const {
  const auto server = static_cast<size_t>(server_of_[static_cast<size_t>(rank)]);
  const int32_t place = rank - first_[server];
  return first_[server] + wrap(is_reversed(server) ? channel - 1 - place : place - channel, server_size(server));
}

int32_t RingChannels::rank_at(int32_t position, int32_t channel) const {
  const auto server = static_cast<size_t>(server_of_[static_cast<size_t>(position)]);
  const int32_t nth = position - first_[server];
  return first_[server] + wrap(is_reversed(server) ? channel - 1 - nth : nth + channel, server_size(server));
}

int32_t RingChannels::channel_at(int32_t rank, bool is_entering) const {
  const auto server = static_cast<size_t>(server_of_[static_cast<size_t>(rank)]);
  const int32_t place = rank - first_[server];
  const int32_t channel = is_entering != is_reversed(server) ? place : wrap(place + 1, server_size(server));
  return first_.size() > 2 && channel < num_channels_ ? channel : -1;
}

}  // namespace rostam::collectives
