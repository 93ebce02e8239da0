// Why nothing moves in PacketNetwork, where nothing can any more.
#include <algorithm>
#include <sstream>

#include "packet/circles.h"
#include "packet/packet_network.h"

namespace rostam::packet {

namespace {

constexpr size_t kMaxShown = 16;  // channels of a circle

}  // namespace

std::string PacketNetwork::describe_stall() const {
  // Of every full buffer that packets wait for, what its own packets wait for.
  Waits waits;
  int64_t num_waiting = 0;
  for (uint32_t channel = 0; channel < links_.num_channels(); ++channel) {
    if (!links_[links_.link_of(channel)].works()) continue;
    for (const WaitLines::Item& item : lines_.items(channel)) {
      if (item.port == WaitLines::kMessages) continue;
      ++num_waiting;
      std::vector<uint32_t>& wanted = waits[packets_[item.id].channel_in];
      if (std::find(wanted.begin(), wanted.end(), channel) == wanted.end()) wanted.push_back(channel);
    }
    for (const Claims::Claim& claim : packet_claims_.claims(channel)) {
      const Packet& packet = packets_[claim.item];
      if (claim.hop == pool_.node(packet.way.node).first_hop) ++num_waiting;  // once for all of its claims
      std::vector<uint32_t>& wanted = waits[packet.channel_in];
      if (std::find(wanted.begin(), wanted.end(), channel) == wanted.end()) wanted.push_back(channel);
    }
  }
  const std::vector<uint32_t> circle = find_circle(waits, links_.num_channels());
  if (circle.empty()) return {};
  std::ostringstream text;
  text << "deadlock at " << queue_->now().seconds() << " s: " << num_waiting << " packets wait for room in buffers, "
       << circle.size() << " of which, full, wait for each other in a circle: ";
  for (size_t k = 0; k < std::min(circle.size(), kMaxShown); ++k) {
    text << describe_channel(circle[k]) << ", ";
  }
  if (circle.size() > kMaxShown) text << circle.size() - kMaxShown << " more, ";
  text << "back to the first; take a routing that is free of deadlock here (rostam check), turns_adaptive, turns or "
          "up_down say, or "
          "more packets.buffer_bytes";
  return text.str();
}

}  // namespace rostam::packet
