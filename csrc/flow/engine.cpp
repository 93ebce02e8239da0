// The flow tier as an engine.
#include "flow/adaptive_network.h"
#include "network/registry.h"

namespace rostam::network {

std::unique_ptr<Network> make_flow_network(EventQueue& queue, const LinkTable& links, NetworkClient& client) {
  if (links.is_adaptive()) return std::make_unique<flow::AdaptiveNetwork>(queue, links, client);
  return std::make_unique<flow::FlowNetwork>(queue, links, client);
}

EngineTraits flow_engine_traits() {
  return {true,
          true,
          true,
          true,
          false,
          true,
          "max-min fair rates of whole messages, event by event; symmetric systems are folded"};
}

}  // namespace rostam::network
