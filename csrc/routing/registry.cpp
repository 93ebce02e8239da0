#include "routing/registry.h"

#include <utility>

namespace rostam::routing {

namespace {

struct Entry {
  const char* name;
  std::unique_ptr<RoutePolicy> (*make)(std::shared_ptr<const fabric::Fabric>, const PolicyOptions&);
  const char* summary;
  const char* what;  // its number counts; null: it takes none
  int32_t usual, most;
};

constexpr Entry kEntries[] = {
#define ROSTAM_ROUTING(name, summary) {#name, &make_##name##_policy, summary, nullptr, 0, 0},
#define ROSTAM_NUMBERED_ROUTING(name, what, usual, most, summary) \
  {#name, &make_##name##_policy, summary, what, usual, most},
#include "routing/builtin.inc"
#undef ROSTAM_NUMBERED_ROUTING
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

// 0 where the text is no whole number from 1 to `most`.
int32_t whole_number(const std::string& text, int32_t most) {
  int32_t number = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '9') return 0;
    number = number * 10 + (digit - '0');
    if (number > most) return 0;
  }
  return number;
}

}  // namespace

RoutingChoice parse_routing(const std::string& text) {
  const size_t colon = text.find(':');
  const Entry& entry = find(text.substr(0, colon));
  if (colon == std::string::npos) return {entry.name, entry.usual};
  if (entry.what == nullptr) {
    ROSTAM_THROW(ConfigError, "routing is '" << text << "', but " << entry.name << " takes no number");
  }
  const int32_t number = whole_number(text.substr(colon + 1), entry.most);
  if (number == 0) {
    ROSTAM_THROW(ConfigError, "routing is '" << text << "'; " << entry.name << " takes its number of " << entry.what
                                             << " behind the colon, an integer from 1 to " << entry.most << ", and has "
                                             << entry.usual << " without one");
  }
  return {entry.name, number};
}

std::unique_ptr<RoutePolicy> make_policy(const std::string& name, std::shared_ptr<const fabric::Fabric> fabric,
                                         const PolicyOptions& options) {
  const RoutingChoice choice = parse_routing(name);
  PolicyOptions own = options;
  own.number = choice.number;
  return find(choice.name).make(std::move(fabric), own);
}

std::string routing_summary(const std::string& name) { return find(name).summary; }

std::vector<std::string> routing_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

}  // namespace rostam::routing
