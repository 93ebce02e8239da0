#include "fabric/registry.h"

namespace rostam::fabric {

namespace {

struct Entry {
  const char* name;
  Blueprint (*design)(const Params&);
};

constexpr Entry kEntries[] = {
#define ROSTAM_FABRIC(name) {#name, &design_##name},
#include "fabric/builtin.inc"
#undef ROSTAM_FABRIC
};

}  // namespace

std::shared_ptr<const Fabric> make_fabric(const std::string& name, const Params& params) {
  std::string known;
  for (const Entry& entry : kEntries) {
    if (name == entry.name) return std::make_shared<const Fabric>(entry.design(params));
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  ROSTAM_THROW(ConfigError, "unknown fabric '" << name << "'; registered: " << known);
}

std::vector<std::string> fabric_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

}  // namespace rostam::fabric
