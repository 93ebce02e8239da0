// Network: what an engine (flow tier, packet tier) offers to whoever sends data over a fabric.
// A flow is a number of bytes on a weighted set of links with an optional rate cap. It holds its links from its
// start until its last byte has left the source (sent), and is delivered `latency` later (MODEL A3).
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "routing/router.h"
#include "sim/event_queue.h"

namespace rostam::network {

using RouteId = uint32_t;
using FlowId = uint32_t;

// Receives what happens to flows; `token` is the one given to start().
class FlowClient {
 public:
  virtual ~FlowClient() = default;
  virtual void on_sent(uint64_t token) = 0;
  virtual void on_delivered(uint64_t token) = 0;
};

class Network {
 public:
  virtual ~Network() = default;

  // Registers the links that flows may take; equal routes may be registered once and used by many flows. `name` tells
  // routes apart whatever the order of their registration: sums over flows follow it, so that they are reproducible.
  // REQUIRES: every link id < num_links(), shares > 0.
  virtual RouteId add_route(const routing::Route& route, uint64_t name) = 0;

  // Starts a flow now. bytes == 0 is sent at once and delivered after the route's latency.
  // Units: rate_cap [bytes/s]. The id is valid until the flow is sent or cancelled.
  virtual FlowId start(RouteId route, int64_t bytes, uint64_t token,
                       double rate_cap = std::numeric_limits<double>::infinity()) = 0;

  // Takes a flow off its links; its client hears no more of it. What was sent stays counted.
  virtual void cancel(FlowId flow) = 0;

  // Changes a link's capacity [bytes/s] from now on; 0 stalls its flows.
  virtual void set_capacity(int32_t link, double bytes_per_s) = 0;

  // Moves what is left of a flow onto another route.
  virtual void set_path(FlowId flow, RouteId route) = 0;

  // Bytes that a flow has still to send, as of now.
  virtual double backlog(FlowId flow) const = 0;

  // Bytes that crossed each link up to now, and the time in which it carried at least one flow.
  virtual std::vector<double> link_bytes() const = 0;
  virtual std::vector<double> link_busy_seconds() const = 0;

  virtual int32_t num_links() const = 0;
  virtual int64_t num_active_flows() const = 0;
};

}  // namespace rostam::network
