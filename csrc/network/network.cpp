#include "network/network.h"

namespace rostam::network {

bool PacketOptions::operator==(const PacketOptions& other) const {
  return packet_bytes == other.packet_bytes && flit_bytes == other.flit_bytes && buffer_bytes == other.buffer_bytes &&
         num_vcs == other.num_vcs && crossbar_speedup == other.crossbar_speedup &&
         buffer_latency == other.buffer_latency;
}

void Network::set_packets(const PacketOptions& options) {
  if (options == PacketOptions()) return;
  throw ConfigError("packet options are set, but this engine moves whole messages; take fidelity=packet");
}

}  // namespace rostam::network
