// Credits: room in the buffers behind virtual channels. A packet takes room as it starts; the room comes back when its
// tail has left the buffer and word of it has crossed the link, at a time that is known as soon as the packet moves on.
// Credits that are on their way back are counted when they are read, so that they need no events.
// Invariant: 0 <= free <= capacity, and free + in use + on the way back = capacity.
#pragma once

#include <cstdint>
#include <vector>

#include "packet/links.h"

namespace rostam::packet {

class Credits {
 public:
  // capacity: of each channel [bytes].
  explicit Credits(int64_t capacity) : capacity_(capacity) {}

  void resize(size_t num_channels) { channels_.resize(num_channels); }

  int64_t capacity() const { return capacity_; }
  // Room that a channel has [bytes], and what of its buffer is taken as far as its sender knows.
  int64_t free(uint32_t channel, int64_t now_ps) {
    Channel& one = channels_[channel];
    if (one.first < one.returning.size() && one.returning[one.first].at_ps <= now_ps) collect(one, now_ps);
    return capacity_ - one.taken;
  }
  int64_t taken(uint32_t channel, int64_t now_ps) { return capacity_ - free(channel, now_ps); }
  // When the next credit comes back; kNever if none is on its way.
  int64_t next_return_ps(uint32_t channel) const {
    const Channel& one = channels_[channel];
    return one.first < one.returning.size() ? one.returning[one.first].at_ps : kNever;
  }

  void take(uint32_t channel, int64_t bytes) {
    channels_[channel].taken += bytes;
    ROSTAM_CHECK(channels_[channel].taken <= capacity_, "the buffer of channel " << channel << " overflows");
  }
  void give_back(uint32_t channel, int64_t bytes, int64_t at_ps, int64_t now_ps);

  // Throws: InternalError unless all room is free or on its way back.
  void check_idle() const;

 private:
  struct Return {
    int64_t at_ps;
    int64_t bytes;
  };
  struct Channel {
    int64_t taken = 0;              // those on their way back included
    uint32_t first = 0;             // of `returning`, that has not come back
    std::vector<Return> returning;  // by time
  };
  static void collect(Channel& channel, int64_t now_ps);

  int64_t capacity_;
  std::vector<Channel> channels_;
};

}  // namespace rostam::packet
