#include "control/registry.h"

#include <utility>

namespace rostam::control {

namespace {

struct Entry {
  const char* name;
  std::unique_ptr<Controller> (*make)(const ControllerParams&);
  const char* summary;
};

constexpr Entry kEntries[] = {
#define ROSTAM_CONTROLLER(name, summary) {#name, &make_##name##_controller, summary},
#include "control/builtin.inc"
#undef ROSTAM_CONTROLLER
};

const Entry& find(const std::string& name) {
  std::string known;
  for (const Entry& entry : kEntries) {
    if (name == entry.name) return entry;
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  ROSTAM_THROW(ConfigError, "unknown controller '" << name << "'; registered: " << known);
}

}  // namespace

std::unique_ptr<Controller> make_controller(const std::string& name, std::map<std::string, ParamValue> parameters) {
  return find(name).make(ControllerParams(name, std::move(parameters)));
}

std::string controller_summary(const std::string& name) { return find(name).summary; }

std::vector<std::string> controller_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

}  // namespace rostam::control
