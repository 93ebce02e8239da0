// The packet tier as an engine.
#include "network/registry.h"
#include "packet/skipping_network.h"

namespace rostam::network {

std::unique_ptr<Network> make_packet_network(EventQueue& queue, const LinkTable& links, NetworkClient& client) {
  return std::make_unique<packet::SkippingNetwork>(queue, links, client);
}

EngineTraits packet_engine_traits() {
  EngineTraits traits;
  traits.checks_capacity = traits.walks_packets = traits.can_adapt = true;
  traits.summary = "packets from buffer to buffer: credits, virtual channels, local choices; deadlock is found";
  return traits;
}

}  // namespace rostam::network
