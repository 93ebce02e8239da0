// Credits: room in the buffers behind virtual channels. A packet takes room as it starts; the room comes back when its
// tail has left the buffer and word of it has crossed the link, at a time that is known as soon as the packet moves on.
// Credits that are on their way back are counted when they are read, so that they need no events.
// Channels of a pool share its room: each has some of its own, and takes of the rest as it needs; a pool of one channel
// is a buffer of its own. Each may so hold a packet whatever the others do, as freedom from deadlock asks for.
// Invariant: 0 <= free <= capacity, and free + in use + on the way back = capacity, of every pool.
// Source of shared buffers: Tamir and Frazier, "Dynamically-Allocated Multi-Queue Buffers for VLSI Communication
// Switches", IEEE Transactions on Computers 41(6), 1992; of the part for each channel: Dally and Towles 2004, 17.1.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "packet/links.h"
#include "sim/few_list.h"

namespace rostam::packet {

class Credits {
 public:
  Credits() = default;
  // As many pools for each link, of consecutive channels; the last one has those that are left. Units: [bytes].
  Credits(const Links& links, const network::PacketOptions& options, bool is_shared);

  void resize(const Links& links);

  // Room that a channel has [bytes], and what of its buffer is taken as far as its sender knows.
  int64_t free(uint32_t id, int64_t now_ps) {
    const Channel& one = channels_[id];
    if (!is_shared_) {
      collect_due(id, now_ps);
      return own_ - one.taken;
    }
    const Pool& pool = pools_[one.pool];
    for (uint32_t k = pool.first; k < pool.end; ++k) collect_due(k, now_ps);
    return std::max<int64_t>(0, own_ - one.taken) + pool.shared - pool.over;
  }
  int64_t taken(uint32_t id, int64_t now_ps) {
    collect_due(id, now_ps);
    return channels_[id].taken;
  }
  // When the next credit comes back that the channel may use; kNever if none is on its way.
  int64_t next_return_ps(uint32_t id) const {
    if (!is_shared_) return first_return_ps(channels_[id]);
    const Pool& pool = pools_[channels_[id].pool];
    int64_t next_ps = kNever;
    for (uint32_t k = pool.first; k < pool.end; ++k) next_ps = std::min(next_ps, first_return_ps(channels_[k]));
    return next_ps;
  }

  void take(uint32_t id, int64_t bytes) {
    Channel& channel = channels_[id];
    add(channel, bytes);
    const bool fits = is_shared_ ? pools_[channel.pool].over <= pools_[channel.pool].shared : channel.taken <= own_;
    ROSTAM_CHECK(fits, "the buffer of channel " << id << " overflows");
  }
  void give_back(uint32_t id, int64_t bytes, int64_t at_ps, int64_t now_ps);

  // Asks for the memory of a channel.
  void fetch(uint32_t id) const { __builtin_prefetch(&channels_[id], 1); }

  // Throws: InternalError unless all room is free or on its way back.
  void check_idle() const;

 private:
  struct Return {
    int64_t at_ps;
    int64_t bytes;
  };
  struct alignas(64) Channel {
    int64_t taken = 0;   // those on their way back included
    uint32_t first = 0;  // of `returning`, that has not come back
    uint32_t pool = 0;
    FewList<Return, 2> returning;  // by time
  };
  struct Pool {
    uint32_t first = 0, end = 0;  // channels
    int64_t shared = 0;           // beyond what each has of its own
    int64_t over = 0;             // of it, that is taken
  };
  static int64_t first_return_ps(const Channel& one) {
    return one.first < one.returning.size() ? one.returning[one.first].at_ps : kNever;
  }
  // What a channel takes beyond its own.
  int64_t over(const Channel& channel) const { return std::max<int64_t>(0, channel.taken - own_); }
  // Pools count what is shared; buffers of one channel need no more than what it has taken.
  void add(Channel& channel, int64_t bytes) {
    const int64_t before = over(channel);
    channel.taken += bytes;
    if (is_shared_) pools_[channel.pool].over += over(channel) - before;
  }
  void collect_due(uint32_t id, int64_t now_ps) {
    Channel& one = channels_[id];
    if (one.first < one.returning.size() && one.returning[one.first].at_ps <= now_ps) collect(one, now_ps);
  }
  void collect(Channel& channel, int64_t now_ps);

  int64_t own_ = 0, buffer_bytes_ = 0;
  bool is_shared_ = false;
  std::vector<Channel> channels_;
  std::vector<Pool> pools_;
};

}  // namespace rostam::packet
