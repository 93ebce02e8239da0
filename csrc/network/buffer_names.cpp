#include "network/buffer_names.h"

#include <algorithm>

#include "sim/errors.h"

namespace rostam::network {

namespace {

// The place of a name among those there are.
size_t place_of(const std::string& name, const std::vector<std::string>& known, const char* key) {
  const auto found = std::find(known.begin(), known.end(), name);
  if (found != known.end()) return static_cast<size_t>(found - known.begin());
  std::string all;
  for (const std::string& one : known) all += (all.empty() ? "" : ", ") + one;
  ROSTAM_THROW(ConfigError, "packets." << key << " is '" << name << "'; allowed: " << all);
}

}  // namespace

std::vector<std::string> spare_channel_names() { return {"output", "destination", "idle"}; }

SpareChannels spare_channels(const std::string& name) {
  return static_cast<SpareChannels>(place_of(name, spare_channel_names(), "spare_vcs"));
}

std::vector<std::string> buffer_parts_names() { return {"routing", "equal", "shared"}; }

BufferParts buffer_parts(const std::string& name) {
  return static_cast<BufferParts>(place_of(name, buffer_parts_names(), "buffer_parts"));
}

}  // namespace rostam::network
