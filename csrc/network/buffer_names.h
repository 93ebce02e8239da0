// Names of how virtual channels are used and what they have of buffers, as configurations have them.
// Example: spare_channels("output") == SpareChannels::kOutput
#pragma once

#include <string>
#include <vector>

#include "network/network.h"

namespace rostam::network {

// "output", "destination", "idle". Throws: ConfigError for another name.
SpareChannels spare_channels(const std::string& name);
std::vector<std::string> spare_channel_names();

// "routing", "equal", "shared". Throws: ConfigError for another name.
BufferParts buffer_parts(const std::string& name);
std::vector<std::string> buffer_parts_names();

}  // namespace rostam::network
