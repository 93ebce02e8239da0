#include "network/network.h"

#include <string>

namespace rostam::network {

bool PacketOptions::operator==(const PacketOptions& other) const {
  return packet_bytes == other.packet_bytes && flit_bytes == other.flit_bytes && buffer_bytes == other.buffer_bytes &&
         num_vcs == other.num_vcs && crossbar_speedup == other.crossbar_speedup &&
         buffer_latency == other.buffer_latency && spare_vcs == other.spare_vcs && buffer_parts == other.buffer_parts &&
         enable_skip == other.enable_skip;
}

void Network::set_packets(const PacketOptions& options) {
  const PacketOptions usual;
  if (options == usual) return;
  const char* key = options.packet_bytes != usual.packet_bytes           ? "packet_bytes"
                    : options.flit_bytes != usual.flit_bytes             ? "flit_bytes"
                    : options.buffer_bytes != usual.buffer_bytes         ? "buffer_bytes"
                    : options.num_vcs != usual.num_vcs                   ? "num_vcs"
                    : options.crossbar_speedup != usual.crossbar_speedup ? "crossbar_speedup"
                    : options.buffer_latency != usual.buffer_latency     ? "buffer_latency"
                    : options.spare_vcs != usual.spare_vcs               ? "spare_vcs"
                    : options.buffer_parts != usual.buffer_parts         ? "buffer_parts"
                                                                         : "skip";
  throw ConfigError(std::string("packets.") + key +
                    " is set, but this fidelity moves whole messages; take fidelity=packet");
}

}  // namespace rostam::network
