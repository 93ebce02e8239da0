#include "network/registry.h"

#include "network/striped_network.h"

namespace rostam::network {

namespace {

struct Entry {
  const char* name;
  std::unique_ptr<Network> (*make)(EventQueue&, const LinkTable&, NetworkClient&);
  EngineTraits (*traits)();
};

constexpr Entry kEntries[] = {
#define ROSTAM_ENGINE(name) {#name, &make_##name##_network, &name##_engine_traits},
#include "network/builtin.inc"
#undef ROSTAM_ENGINE
};

const Entry& find(const std::string& fidelity) {
  std::string known;
  for (const Entry& entry : kEntries) {
    if (fidelity == entry.name) return entry;
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  ROSTAM_THROW(ConfigError, "fidelity is '" << fidelity << "'; registered engines: " << known);
}

}  // namespace

std::unique_ptr<Network> make_network(const std::string& fidelity, EventQueue& queue, const LinkTable& links,
                                      NetworkClient& client) {
  const Entry& engine = find(fidelity);
  if (links.is_adaptive() && !engine.traits().can_adapt) {
    ROSTAM_THROW(ConfigError, "routing is adaptive, which fidelity '" << fidelity << "' cannot do; take fidelity=flow");
  }
  if (links.num_plane_classes() > 1) {
    return std::make_unique<StripedNetwork>(engine.make, engine.traits().walks_packets, queue, links, client);
  }
  return engine.make(queue, links, client);
}

LinkTable link_table(const std::string& fidelity, const routing::RouteTable& routes, bool may_fail) {
  return find(fidelity).traits().walks_packets ? LinkTable::for_packets(routes, may_fail) : LinkTable(routes.links());
}

EngineTraits engine_traits(const std::string& fidelity) { return find(fidelity).traits(); }

std::vector<std::string> engine_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

}  // namespace rostam::network
