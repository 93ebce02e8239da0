#include "assignment/registry.h"

#include "sim/errors.h"

namespace rostam::assignment {

namespace {

struct Entry {
  const char* name;
  std::unique_ptr<Assigner> (*make)(const AssignerOptions&);
  const char* summary;
};

constexpr Entry kEntries[] = {
#define ROSTAM_ASSIGNER(name, summary) {#name, &make_##name##_assigner, summary},
#include "assignment/builtin.inc"
#undef ROSTAM_ASSIGNER
};

const Entry& find(const std::string& name) {
  std::string known;
  for (const Entry& entry : kEntries) {
    if (name == entry.name) return entry;
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  ROSTAM_THROW(ConfigError, "assigner is '" << name << "'; it must be one of: " << known);
}

}  // namespace

std::unique_ptr<Assigner> make_assigner(const std::string& name, const AssignerOptions& options) {
  return find(name).make(options);
}

std::string assigner_summary(const std::string& name) { return find(name).summary; }

std::vector<std::string> assigner_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

}  // namespace rostam::assignment
