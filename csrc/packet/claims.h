// Claims: packets that wait for several channels at once, each for all of its next hops, and go on over the first that
// has room. A channel's claims stand in lines by input port as in WaitLines; a packet that goes takes all of its own
// with it.
// Example: claims.stand(packet, hop, channel, port); claims.take(channel, may_go).packet; claims.leave(packet)
#pragma once

#include <cstdint>
#include <vector>

#include "packet/wait_lines.h"

namespace rostam::packet {

class Claims {
 public:
  struct Claim {
    uint32_t packet = kNone, hop = kNone;
    uint32_t channel = kNone, port = kNone;
    uint32_t next = kNone;  // of the packet
  };

  void resize(size_t num_channels) { lines_.resize(num_channels); }

  bool is_empty(uint32_t channel) const { return lines_.is_empty(channel); }
  bool has(uint32_t packet) const { return packet < first_.size() && first_[packet] != kNone; }

  // At the end of the port's line for the channel.
  void stand(uint32_t packet, uint32_t hop, uint32_t channel, uint32_t port);

  // Takes the first claim of the next line whose first may go; its packet's others stay until it leaves. None may: one
  // whose packet is kNone. may_go(port, packet).
  template <typename MayGo>
  Claim take(uint32_t channel, const MayGo& may_go) {
    const WaitLines::Item item =
        lines_.take(channel, [&](uint32_t port, uint32_t id) { return may_go(port, claims_[id].packet); });
    if (item.id == kNone) return {};
    const Claim claim = claims_[item.id];
    drop(item.id);
    return claim;
  }

  // Takes all that it has left. Calls `on_each` with the channel of each.
  template <typename OnEach>
  void leave(uint32_t packet, const OnEach& on_each) {
    while (has(packet)) {
      const uint32_t id = first_[packet];
      const Claim claim = claims_[id];
      lines_.remove(claim.channel, claim.port, id);
      drop(id);
      on_each(claim.channel);
    }
  }

  // Of a channel, line by line.
  std::vector<Claim> items(uint32_t channel) const;

 private:
  void drop(uint32_t id);

  WaitLines lines_;  // of claims
  std::vector<Claim> claims_;
  std::vector<uint32_t> free_;
  std::vector<uint32_t> first_;  // of each packet
};

}  // namespace rostam::packet
