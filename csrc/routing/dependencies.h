// Channel dependencies: which virtual channels of links a packet may hold while it waits for which others. Routing over
// finite buffers is free of deadlock where these form no circle.
// Example: find_dependencies(*policy, members, ChannelScheme::kPhases).cycle.empty()
// Source: Dally and Seitz, "Deadlock-Free Message Routing in Multiprocessor Interconnection Networks", IEEE TC 1987,
// theorem 1; of adaptive routings every dependency counts, which suffices.
// Optional hops (Steps::Node::num_optional) are the exception: a packet waits for them and for the required hops at
// once and takes the first with room, so that it depends on the required ones alone. Buffers hold whole packets, so
// that a packet that waits holds one buffer only and no dependency leads on through optional ones. If every buffer's
// packets wait, among others, for buffers that come later in one order, then of the full ones the last goes on. Source:
// Duato, "A Necessary and Sufficient Condition for Deadlock-Free Routing in Cut-Through and Store-and-Forward
// Networks", IEEE TPDS 7(8), 1996. A place without a required hop counts all of its hops.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "routing/policy.h"

namespace rostam::routing {

// Which virtual channel of a link a packet takes: the phase behind the link, as the routing has it; always the first;
// or the k-th on the k-th link of its way.
enum class ChannelScheme { kPhases = 0, kOne = 1, kHops = 2 };

// By name: "routing", "one", "hops", in the order above. Throws: ConfigError for another name.
ChannelScheme channel_scheme(const std::string& name);
std::vector<std::string> channel_schemes();

struct VirtualChannel {
  int32_t link = 0;
  int32_t channel = 0;
};

struct Dependencies {
  int64_t num_channels = 0;                 // that paths use
  int64_t num_dependencies = 0;             // pairs of them, one held while the other is waited for
  int32_t num_virtual_channels = 0;         // the most that one link needs, those at their end alike
  int64_t num_pairs = 0, num_unrouted = 0;  // ordered pairs with a path, and without one
  std::vector<VirtualChannel> cycle;        // each waits for the next one, the last for the first; empty: none
};

// Of all ordered pairs of `members`, over every path that messages between them may take.
// Throws: ConfigError for a routing that cannot say which paths it takes. Cost: pairs x paths.
Dependencies find_dependencies(const RoutePolicy& policy, const std::vector<int32_t>& members, ChannelScheme scheme);

}  // namespace rostam::routing
