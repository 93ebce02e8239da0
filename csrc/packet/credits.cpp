#include "packet/credits.h"

namespace rostam::packet {

Credits::Credits(const Links& links, const network::PacketOptions& options, bool is_shared)
    : own_(is_shared ? options.packet_bytes : options.buffer_bytes / links.num_vcs()),
      buffer_bytes_(options.buffer_bytes),
      is_shared_(is_shared) {
  resize(links);
}

void Credits::resize(const Links& links) {
  const uint32_t in_pool = is_shared_ ? std::min(links.num_needed(), links.num_vcs()) : 1;
  const uint32_t num_pools = links.num_vcs() / in_pool;
  for (uint32_t id = static_cast<uint32_t>(channels_.size()); id < links.num_channels();) {
    for (uint32_t k = 0; k < num_pools; ++k) {
      Pool pool;
      pool.first = id;
      pool.end = id + in_pool + (k + 1 == num_pools ? links.num_vcs() % in_pool : 0);
      const int64_t count = pool.end - pool.first;
      if (is_shared_) pool.shared = std::max<int64_t>(0, buffer_bytes_ * count / links.num_vcs() - count * own_);
      channels_.resize(pool.end);
      for (; id < pool.end; ++id) channels_[id].pool = static_cast<uint32_t>(pools_.size());
      pools_.push_back(pool);
    }
  }
}

void Credits::collect(Channel& channel, int64_t now_ps) {
  while (channel.first < channel.returning.size() && channel.returning[channel.first].at_ps <= now_ps) {
    add(channel, -channel.returning[channel.first++].bytes);
  }
  ROSTAM_CHECK(channel.taken >= 0, "a buffer gives back " << -channel.taken << " bytes more than were taken");
  if (2 * channel.first < channel.returning.size()) return;
  channel.returning.drop_front(channel.first);
  channel.first = 0;
}

void Credits::give_back(uint32_t id, int64_t bytes, int64_t at_ps, int64_t now_ps) {
  Channel& channel = channels_[id];
  collect_due(id, now_ps);
  // They come back nearly in the order in which packets move on.
  uint32_t place = channel.returning.size();
  channel.returning.push_back({at_ps, bytes});
  for (; place > channel.first && channel.returning[place - 1].at_ps > at_ps; --place) {
    channel.returning[place] = channel.returning[place - 1];
  }
  channel.returning[place] = {at_ps, bytes};
}

void Credits::check_idle() const {
  for (size_t id = 0; id < channels_.size(); ++id) {
    int64_t used = channels_[id].taken;
    for (uint32_t k = channels_[id].first; k < channels_[id].returning.size(); ++k) {
      used -= channels_[id].returning[k].bytes;
    }
    ROSTAM_CHECK(used == 0,
                 "no packet is under way, but " << used << " bytes of the buffer of channel " << id << " are taken");
  }
}

}  // namespace rostam::packet
