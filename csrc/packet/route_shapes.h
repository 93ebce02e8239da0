// RouteShapes: what packets see of a route but for its names. Two routes of one shape are the same graph of hops, over
// links of the same rates and latencies: a message does the same on both, from the same state of their links.
// Example: shapes.of(3).shape == shapes.of(7).shape
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "packet/packet_network.h"

namespace rostam::packet {

class RouteShapes {
 public:
  struct Facts {
    uint32_t shape = 0;
    std::vector<uint32_t> links, places;  // its links, and its places with several hops, each in the shape's order
    bool is_whole = false;                // packets take no other links
    bool is_plain = false;                // it neither draws ways nor goes by load, and all of it works
    bool is_adaptive = false;
  };

  explicit RouteShapes(PacketNetwork& packets) : packets_(packets) {}

  // Cost: that of looking through the route, the first time. The reference holds until another route is asked for.
  const Facts& of(network::RouteId route);

 private:
  Facts find(network::RouteId route);

  PacketNetwork& packets_;
  std::vector<Facts> facts_;
  std::vector<uint8_t> is_known_;
  std::map<std::vector<int64_t>, uint32_t> shapes_;
};

}  // namespace rostam::packet
