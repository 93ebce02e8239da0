// EndPoints: what a route or a load on links means to the accelerators at their ends (MODEL K29). Every route must take
// all of a transfer out of its source and into its destination, and every accelerator's outgoing links must carry what
// it sends and forwards, its incoming ones what it receives and forwards.
#pragma once

#include <cstdint>
#include <vector>

#include "routing/route_table.h"

namespace rostam::routing {

// Bytes that `link` carried into its end and that did not go on from there, though they count as received (if still
// under way, or lost of a transfer that was cancelled) or not as sent (if lost and sent again) by `accelerator`.
struct Stray {
  int32_t link = 0;
  int32_t accelerator = 0;
  double bytes = 0;
};

class EndPoints {
 public:
  explicit EndPoints(const RouteTable& routes);

  // A link that is added in a run, between two accelerators.
  void add_link(int32_t src, int32_t dst);

  // Throws: InternalError unless the route starts at accelerator `src` and ends at `dst`, with all of the transfer; of
  // a route with lanes each lane.
  void check_route(const Route& route, int32_t src, int32_t dst);

  // Throws: InternalError unless a tree's links carry out of every accelerator, and into it, what its ends say.
  void check_region(const Route& route);

  // For every accelerator, bytes on outgoing links minus bytes on incoming ones must be what it sent minus what it
  // received, but for what strayed; where planes differ over all of them. Units: link_bytes over engine links, sent and
  // received over accelerators [bytes]. Throws: InternalError.
  void check_bytes(const std::vector<double>& link_bytes, const std::vector<double>& sent,
                   const std::vector<double>& received, const std::vector<Stray>& strays = {}) const;

  // Bytes that accelerators passed on: out of all of them less what they sent themselves. Units: as check_bytes.
  double forwarded_bytes(const std::vector<double>& link_bytes, const std::vector<double>& sent) const;

 private:
  void check_links(const LinkShare* first, const LinkShare* last, int32_t src, int32_t dst);

  // Share of an engine link's load that leaves (> 0) or enters (< 0) an accelerator.
  struct End {
    int32_t accelerator;
    double share;
  };
  std::vector<uint32_t> first_;  // per engine link, into ends_; one more at the end
  std::vector<End> ends_;
  std::vector<int32_t> num_planes_;  // per engine link: that it stands for
  std::vector<double> net_;          // scratch of check_route, 0 between calls
};

}  // namespace rostam::routing
