#include "routing/registry.h"

#include <utility>

namespace rostam::routing {

namespace {

struct Entry {
  const char* name;
  std::unique_ptr<RoutePolicy> (*make)(std::shared_ptr<const fabric::Fabric>, const PolicyOptions&);
  const char* summary;
};

constexpr Entry kEntries[] = {
#define ROSTAM_ROUTING(name, summary) {#name, &make_##name##_policy, summary},
#include "routing/builtin.inc"
#undef ROSTAM_ROUTING
};

const Entry& find(const std::string& name) {
  std::string known;
  for (const Entry& entry : kEntries) {
    if (name == entry.name) return entry;
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  ROSTAM_THROW(ConfigError, "unknown routing '" << name << "'; registered: " << known);
}

}  // namespace

std::unique_ptr<RoutePolicy> make_policy(const std::string& name, std::shared_ptr<const fabric::Fabric> fabric,
                                         const PolicyOptions& options) {
  return find(name).make(std::move(fabric), options);
}

std::string routing_summary(const std::string& name) { return find(name).summary; }

std::vector<std::string> routing_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

}  // namespace rostam::routing
