#include "packet/credits.h"

namespace rostam::packet {

namespace {

constexpr uint32_t kFew = 16;  // credits that come back and are not looked at

}  // namespace

void Credits::collect(Channel& channel, int64_t now_ps) {
  while (channel.first < channel.returning.size() && channel.returning[channel.first].at_ps <= now_ps) {
    channel.taken -= channel.returning[channel.first++].bytes;
  }
  ROSTAM_CHECK(channel.taken >= 0, "a buffer gives back " << -channel.taken << " bytes more than were taken");
  if (channel.first < channel.returning.size() && channel.first < kFew) return;
  channel.returning.erase(channel.returning.begin(), channel.returning.begin() + channel.first);
  channel.first = 0;
}

void Credits::give_back(uint32_t id, int64_t bytes, int64_t at_ps, int64_t now_ps) {
  Channel& channel = channels_[id];
  if (channel.returning.size() - channel.first >= kFew) collect(channel, now_ps);
  // They come back nearly in the order in which packets move on.
  size_t place = channel.returning.size();
  channel.returning.push_back({at_ps, bytes});
  for (; place > channel.first && channel.returning[place - 1].at_ps > at_ps; --place) {
    channel.returning[place] = channel.returning[place - 1];
  }
  channel.returning[place] = {at_ps, bytes};
}

void Credits::check_idle() const {
  for (size_t id = 0; id < channels_.size(); ++id) {
    int64_t used = channels_[id].taken;
    for (size_t k = channels_[id].first; k < channels_[id].returning.size(); ++k) {
      used -= channels_[id].returning[k].bytes;
    }
    ROSTAM_CHECK(used == 0,
                 "no packet is under way, but " << used << " bytes of the buffer of channel " << id << " are taken");
  }
}

}  // namespace rostam::packet
