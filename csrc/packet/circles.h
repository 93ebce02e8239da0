// Circles of virtual channels that wait for each other.
// Example: find_circle({{3, {4}}, {4, {3}}}, 8) is {3, 4}.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace rostam::packet {

// Of channels that are held those that are waited for.
using Waits = std::unordered_map<uint32_t, std::vector<uint32_t>>;

// A circle of channels, each of which waits for the next; empty: none. Cost: O(channels + waits).
std::vector<uint32_t> find_circle(const Waits& waits, uint32_t num_channels);

}  // namespace rostam::packet
