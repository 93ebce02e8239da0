// Why nothing moves in PacketNetwork, where nothing can any more.
#include <algorithm>
#include <sstream>
#include <unordered_map>

#include "packet/packet_network.h"

namespace rostam::packet {

namespace {

using Waits = std::unordered_map<uint32_t, std::vector<uint32_t>>;

constexpr size_t kMaxShown = 16;  // channels of a circle

// A circle of channels, each of which waits for the next; empty: none.
std::vector<uint32_t> find_circle(const Waits& waits, uint32_t num_channels) {
  enum State : uint8_t { kNew, kOpen, kDone };
  std::vector<uint8_t> state(num_channels, kNew);
  struct Frame {
    uint32_t channel;
    size_t next;
  };
  std::vector<Frame> stack;
  const std::vector<uint32_t> none;
  for (uint32_t start = 0; start < num_channels; ++start) {
    if (state[start] != kNew || waits.count(start) == 0) continue;
    stack.push_back({start, 0});
    state[start] = kOpen;
    while (!stack.empty()) {
      Frame& top = stack.back();
      const auto found = waits.find(top.channel);
      const std::vector<uint32_t>& after = found == waits.end() ? none : found->second;
      if (top.next == after.size()) {
        state[top.channel] = kDone;
        stack.pop_back();
        continue;
      }
      const uint32_t there = after[top.next++];
      if (state[there] == kOpen) {
        const auto first =
            std::find_if(stack.begin(), stack.end(), [there](const Frame& frame) { return frame.channel == there; });
        std::vector<uint32_t> circle;
        for (auto frame = first; frame != stack.end(); ++frame) circle.push_back(frame->channel);
        return circle;
      }
      if (state[there] == kDone) continue;
      state[there] = kOpen;
      stack.push_back({there, 0});
    }
  }
  return {};
}

}  // namespace

std::string PacketNetwork::describe_stall() const {
  // Of every full buffer that packets wait for, what its own packets wait for.
  Waits waits;
  int64_t num_waiting = 0;
  for (uint32_t channel = 0; channel < links_.num_channels(); ++channel) {
    if (links_[links_.link_of(channel)].bytes_per_s <= 0) continue;
    for (const WaitLines::Item& item : lines_.items(channel)) {
      if (item.port == WaitLines::kMessages) continue;
      ++num_waiting;
      std::vector<uint32_t>& wanted = waits[packets_[item.id].channel_in];
      if (std::find(wanted.begin(), wanted.end(), channel) == wanted.end()) wanted.push_back(channel);
    }
    for (const Claims::Claim& claim : claims_.items(channel)) {
      if (claim.hop == packets_[claim.packet].hop) ++num_waiting;  // once, for its last one
      std::vector<uint32_t>& wanted = waits[packets_[claim.packet].channel_in];
      if (std::find(wanted.begin(), wanted.end(), channel) == wanted.end()) wanted.push_back(channel);
    }
  }
  const std::vector<uint32_t> circle = find_circle(waits, links_.num_channels());
  if (circle.empty()) return {};
  std::ostringstream text;
  text << "deadlock at " << queue_.now().seconds() << " s: " << num_waiting << " packets wait for room in buffers, "
       << circle.size() << " of which, full, wait for each other in a circle: ";
  for (size_t k = 0; k < std::min(circle.size(), kMaxShown); ++k) {
    const Link& link = links_[links_.link_of(circle[k])];
    text << links_.names()(link.src) << " -> " << links_.names()(link.dst) << " (virtual channel "
         << circle[k] % links_.num_vcs() << "), ";
  }
  if (circle.size() > kMaxShown) text << circle.size() - kMaxShown << " more, ";
  text << "back to the first; take a routing that is free of deadlock here (rostam check), turns or up_down say, or "
          "more packets.buffer_bytes";
  return text.str();
}

}  // namespace rostam::packet
