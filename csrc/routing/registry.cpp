#include "routing/registry.h"

#include <utility>

namespace rostam::routing {

namespace {

struct Entry {
  const char* name;
  std::unique_ptr<Router> (*make)(std::shared_ptr<const fabric::Fabric>, const RouterOptions&);
};

constexpr Entry kEntries[] = {
#define ROSTAM_ROUTING(name) {#name, &make_##name##_router},
#include "routing/builtin.inc"
#undef ROSTAM_ROUTING
};

}  // namespace

std::unique_ptr<Router> make_router(const std::string& name, std::shared_ptr<const fabric::Fabric> fabric,
                                    const RouterOptions& options) {
  std::string known;
  for (const Entry& entry : kEntries) {
    if (name == entry.name) return entry.make(std::move(fabric), options);
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  ROSTAM_THROW(ConfigError, "unknown routing '" << name << "'; registered: " << known);
}

std::vector<std::string> routing_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

}  // namespace rostam::routing
