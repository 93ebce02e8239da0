#include "routing/registry.h"

#include <utility>

namespace rostam::routing {

namespace {

struct Entry {
  const char* name;
  const char* summary;
  std::unique_ptr<Router> (*make)(std::shared_ptr<const fabric::Fabric>, const RouterOptions&);
};

constexpr Entry kEntries[] = {
#define ROSTAM_ROUTING(name, summary) {#name, summary, &make_##name##_router},
#include "routing/builtin.inc"
#undef ROSTAM_ROUTING
};

const Entry& entry_of(const std::string& name) {
  std::string known;
  for (const Entry& entry : kEntries) {
    if (name == entry.name) return entry;
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  ROSTAM_THROW(ConfigError, "unknown routing '" << name << "'; registered: " << known);
}

}  // namespace

std::unique_ptr<Router> make_router(const std::string& name, std::shared_ptr<const fabric::Fabric> fabric,
                                    const RouterOptions& options) {
  return entry_of(name).make(std::move(fabric), options);
}

std::string routing_summary(const std::string& name) { return entry_of(name).summary; }

std::vector<std::string> routing_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

}  // namespace rostam::routing
