// Waypoints: the vertices by way of which a routing sends packets, each packet by way of one that it draws: minimal
// paths to it, then minimal paths on from it. Steps of all these ways together would grow with accelerators x waypoints
// x accelerators; legs are shared by all messages that take them. Example: way.legs->leg(src, (*way.vertices)[k], 0),
// then way.legs->leg((*way.vertices)[k], dst, 1).
#pragma once

#include <cstdint>

#include "routing/route.h"

namespace rostam::routing {

class Waypoints {
 public:
  virtual ~Waypoints() = default;

  // The paths from a vertex to another one, in the virtual channels of the first (0) or second (1) part of a way.
  // REQUIRES: `from` reaches `to`, and they differ.
  virtual Steps leg(int32_t from, int32_t to, int32_t part) const = 0;
};

}  // namespace rostam::routing
