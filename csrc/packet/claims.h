// Claims: items (packets, or messages for their next ones) that wait for several channels at once, for all of their
// next hops, and go on over the first that has room. A channel's claims stand in lines by input port as in WaitLines;
// an item that goes takes all of its own along. Example: claims.stand(packet, hop, channel, port); claims.take(channel,
// may_go).item; claims.leave(packet, on_each)
#pragma once

#include <cstdint>
#include <vector>

#include "packet/wait_lines.h"

namespace rostam::packet {

class Claims {
 public:
  struct Claim {
    uint32_t item = kNone, hop = kNone;
    uint32_t channel = kNone, port = kNone;
    uint32_t next = kNone;  // of the item
  };

  void resize(size_t num_channels) { lines_.resize(num_channels); }

  bool is_empty() const { return claims_.size() == free_.size(); }
  bool is_empty(uint32_t channel) const { return lines_.is_empty(channel); }
  bool has(uint32_t item) const { return item < first_.size() && first_[item] != kNone; }

  // At the end of the port's line for the channel.
  void stand(uint32_t item, uint32_t hop, uint32_t channel, uint32_t port);

  // Takes the first claim of the next line whose first may go; the item's others stay until it leaves. None may: one
  // whose item is kNone. may_go(port, item).
  template <typename MayGo>
  Claim take(uint32_t channel, const MayGo& may_go) {
    const WaitLines::Item taken =
        lines_.take(channel, [&](uint32_t port, uint32_t claim) { return may_go(port, claims_[claim].item); });
    if (taken.id == kNone) return {};
    const Claim claim = claims_[taken.id];
    drop(taken.id);
    return claim;
  }

  // Takes all that an item has left. Calls `on_each` with the channel of each.
  template <typename OnEach>
  void leave(uint32_t item, const OnEach& on_each) {
    while (has(item)) {
      const uint32_t first = first_[item];
      const Claim claim = claims_[first];
      lines_.remove(claim.channel, claim.port, first);
      drop(first);
      on_each(claim.channel);
    }
  }

  // Of a channel, line by line.
  std::vector<Claim> claims(uint32_t channel) const;

 private:
  void drop(uint32_t claim);

  WaitLines lines_;  // of claims
  std::vector<Claim> claims_;
  std::vector<uint32_t> free_;
  std::vector<uint32_t> first_;  // claim of each item
};

}  // namespace rostam::packet
