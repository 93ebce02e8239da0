// What a session's events carry: a device and a stream, slot or version of it, in one number.
#pragma once

#include <cstdint>

namespace rostam::runtime {

inline uint64_t pack(int32_t device, int32_t index) { return uint64_t(uint32_t(device)) << 32 | uint32_t(index); }
inline int32_t high(uint64_t payload) { return static_cast<int32_t>(payload >> 32); }
inline int32_t low(uint64_t payload) { return static_cast<int32_t>(payload & 0xFFFFFFFFu); }

}  // namespace rostam::runtime
