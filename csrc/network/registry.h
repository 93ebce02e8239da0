// Registry of engines by name (the configuration's `fidelity`). An engine is one file that defines
// make_<name>_network and <name>_engine_traits, and a line in builtin.inc.
// Example: make_network("flow", queue, links, client)->start({route, bytes, token});
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "network/link_table.h"
#include "network/network.h"

namespace rostam::network {

// What a session may rely on.
struct EngineTraits {
  // Links and transfers may stand for many that behave alike: shares of a route may be any number above 0.
  // Else the session runs unfolded.
  bool can_fold = false;
  // A transfer that shares none of its links is sent at the least of capacity / share, from its start to its end, so
  // that shortcuts may compute it and resume() it. Else every message is started.
  bool exact_when_alone = false;
  // No link ever carries more than its capacity (1e-9 relative), which the engine checks.
  bool checks_capacity = false;
  // It tells what a transfer puts on each link of its route (Network::shares_of), unless it divides the transfer
  // itself.
  bool tells_shares = false;
  // Messages go as packets: routes come with all that these need (routing::Detail::kPackets), over links that are not
  // bundled, and transfers may be moved and cancelled until they are delivered.
  bool walks_packets = false;
  // Takes routes whose messages it is to divide (routing::Route::is_adaptive).
  bool can_adapt = false;
  const char* summary = "";  // one line, for lists
};

#define ROSTAM_ENGINE(name)                                                                                         \
  std::unique_ptr<Network> make_##name##_network(EventQueue& queue, const LinkTable& links, NetworkClient& client); \
  EngineTraits name##_engine_traits();
#include "network/builtin.inc"
#undef ROSTAM_ENGINE

// `queue` and `client` must outlive the network; `links` is read here only.
// Throws: ConfigError listing the registered names if `fidelity` is not one of them, or if it cannot adapt and must.
std::unique_ptr<Network> make_network(const std::string& fidelity, EventQueue& queue, const LinkTable& links,
                                      NetworkClient& client);

// The links of a system as this engine needs to know them; may_fail: during the run. Throws: as make_network.
LinkTable link_table(const std::string& fidelity, const routing::RouteTable& routes, bool may_fail);

// Throws: as make_network.
EngineTraits engine_traits(const std::string& fidelity);

std::vector<std::string> engine_names();

}  // namespace rostam::network
