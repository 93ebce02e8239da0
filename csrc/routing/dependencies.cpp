#include "routing/dependencies.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "sim/errors.h"
#include "sim/interrupt.h"

namespace rostam::routing {

namespace {

class Graph {
 public:
  Graph(size_t num_links, ChannelScheme scheme) : num_links_(num_links), scheme_(scheme) {}

  void add(const Steps& steps) {
    // The links into a node, with their channels: nodes come after those that lead to them.
    std::vector<std::vector<int64_t>> held(steps.nodes.size());
    std::vector<int32_t> depth(steps.nodes.size(), 0);
    for (size_t n = 0; n < steps.nodes.size(); ++n) {
      const uint32_t first_waited = first_required_hop(steps.nodes[n]);
      for (uint32_t h = steps.nodes[n].first_hop; h < steps.nodes[n].end_hop; ++h) {
        const Steps::Hop& hop = steps.hops[h];
        ROSTAM_CHECK(hop.node > n, "steps lead back to node " << hop.node);
        depth[hop.node] = depth[n] + 1;
        const int64_t wanted = channel(hop.link, hop.channel, depth[n]);
        if (h >= first_waited) {
          for (const int64_t one : held[n]) join(one, wanted);
        }
        held[hop.node].push_back(wanted);
      }
    }
  }

  // Where no hop is required a packet depends on all of them.
  static uint32_t first_required_hop(const Steps::Node& node) {
    const uint32_t required = node.first_hop + node.num_optional;
    return required < node.end_hop ? required : node.first_hop;
  }

  Dependencies result() const {
    Dependencies found;
    found.num_channels = static_cast<int64_t>(used_.size());
    found.num_dependencies = static_cast<int64_t>(known_.size());
    std::vector<int32_t> of_link(num_links_, 0);
    // Packets at their end wait for nothing: one channel does for them all.
    std::vector<uint8_t> ends(num_links_, 0);
    for (const int64_t one : used_) {
      const size_t link = static_cast<size_t>(one) % num_links_;
      if (after_[static_cast<size_t>(one)].empty() && std::exchange(ends[link], 1) != 0) continue;
      found.num_virtual_channels = std::max(found.num_virtual_channels, ++of_link[link]);
    }
    for (const int64_t one : find_cycle()) {
      const auto links = static_cast<int64_t>(num_links_);
      found.cycle.push_back({static_cast<int32_t>(one % links), static_cast<int32_t>(one / links)});
    }
    return found;
  }

 private:
  int64_t channel(int32_t link, int32_t phase, int32_t depth) {
    const int32_t number = scheme_ == ChannelScheme::kOne ? 0 : scheme_ == ChannelScheme::kHops ? depth : phase;
    if (number >= num_virtual_) {
      num_virtual_ = number + 1;
      after_.resize(num_links_ * static_cast<size_t>(num_virtual_));
    }
    const int64_t one = static_cast<int64_t>(number) * static_cast<int64_t>(num_links_) + link;
    used_.insert(one);
    return one;
  }

  void join(int64_t held, int64_t wanted) {
    const auto num_bits = 32;  // of a channel: links x virtual channels stay below
    if (!known_.insert(static_cast<uint64_t>(held) << num_bits | static_cast<uint64_t>(wanted)).second) return;
    after_[static_cast<size_t>(held)].push_back(wanted);
  }

  // A depth-first search with its own stack, from the lowest channels on.
  std::vector<int64_t> find_cycle() const {
    enum State : uint8_t { kNew, kOpen, kDone };
    std::vector<uint8_t> state(after_.size(), kNew);
    struct Frame {
      int64_t channel;
      size_t next;
    };
    std::vector<Frame> stack;
    InterruptPoll poll;
    for (size_t start = 0; start < after_.size(); ++start) {
      if (state[start] != kNew) continue;
      stack.push_back({static_cast<int64_t>(start), 0});
      state[start] = kOpen;
      while (!stack.empty()) {
        poll();
        Frame& top = stack.back();
        const std::vector<int64_t>& next = after_[static_cast<size_t>(top.channel)];
        if (top.next == next.size()) {
          state[static_cast<size_t>(top.channel)] = kDone;
          stack.pop_back();
          continue;
        }
        const int64_t there = next[top.next++];
        if (state[static_cast<size_t>(there)] == kOpen) {
          const auto first =
              std::find_if(stack.begin(), stack.end(), [there](const Frame& f) { return f.channel == there; });
          std::vector<int64_t> cycle;
          for (auto frame = first; frame != stack.end(); ++frame) cycle.push_back(frame->channel);
          return cycle;
        }
        if (state[static_cast<size_t>(there)] == kDone) continue;
        state[static_cast<size_t>(there)] = kOpen;
        stack.push_back({there, 0});
      }
    }
    return {};
  }

  size_t num_links_;
  ChannelScheme scheme_;
  int32_t num_virtual_ = 0;
  std::vector<std::vector<int64_t>> after_;  // channel -> those waited for while it is held
  std::unordered_set<uint64_t> known_;
  std::unordered_set<int64_t> used_;
};

}  // namespace

std::vector<std::string> channel_schemes() { return {"routing", "one", "hops"}; }

ChannelScheme channel_scheme(const std::string& name) {
  const std::vector<std::string> known = channel_schemes();
  const auto found = std::find(known.begin(), known.end(), name);
  if (found == known.end()) {
    ROSTAM_THROW(ConfigError, "virtual_channels is '" << name << "'; allowed: routing, one, hops");
  }
  return static_cast<ChannelScheme>(found - known.begin());
}

Dependencies find_dependencies(const RoutePolicy& policy, const std::vector<int32_t>& members, ChannelScheme scheme) {
  Graph graph(policy.links().capacities.size(), scheme);
  int64_t num_pairs = 0, num_unrouted = 0;
  InterruptPoll poll;
  for (const int32_t dst : members) {
    for (const int32_t src : members) {
      if (src == dst) continue;
      poll();
      try {
        graph.add(policy.every_path(src, dst).steps);
        ++num_pairs;
      } catch (const NoRouteError&) {
        ++num_unrouted;
      }
    }
  }
  Dependencies found = graph.result();
  found.num_pairs = num_pairs;
  found.num_unrouted = num_unrouted;
  return found;
}

}  // namespace rostam::routing
