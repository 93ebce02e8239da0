#include "packet/circles.h"

#include <algorithm>

namespace rostam::packet {

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

}  // namespace rostam::packet
