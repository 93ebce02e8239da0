// Network: what an engine (flow tier, packet tier) offers to whoever sends data over a fabric.
// A transfer is a number of bytes on a route with an optional rate cap. It holds its links from its start until its
// last byte has left the source (sent), and is delivered the route's latency later (MODEL A3).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "network/link_table.h"
#include "routing/end_points.h"
#include "routing/policy.h"
#include "routing/route.h"
#include "sim/errors.h"
#include "sim/event_queue.h"

namespace rostam::network {

using RouteId = uint32_t;
constexpr RouteId kNoRoute = std::numeric_limits<RouteId>::max();
using TransferId = uint32_t;

// Receives what happens to transfers; `token` is theirs.
class NetworkClient {
 public:
  virtual ~NetworkClient() = default;
  virtual void on_sent(uint64_t token) = 0;
  virtual void on_delivered(uint64_t token) = 0;
  // A delivery is about to come: the client may ask for memory that it is going to look at.
  virtual void fetch_delivered(uint64_t token) const { static_cast<void>(token); }
};

struct Transfer {
  RouteId route = 0;
  int64_t bytes = 0;
  uint64_t token = 0;
  double rate_cap = std::numeric_limits<double>::infinity();  // [bytes/s]
  SimTime extra_latency = SimTime::zero();                    // besides the route's
};

// Which of the virtual channels beyond those that a routing needs a packet takes: by the output that it is going to
// take next, or by its destination, so that one blocked flow fills a part of a buffer only; or none of them.
enum class SpareChannels : uint8_t { kOutput, kDestination, kIdle };

// What virtual channels have of their link's buffer: equal parts; a packet each, and the rest for all of those that a
// routing needs, each set of spare ones alike; or as the routing has it, shared where packets go by load.
enum class BufferParts : uint8_t { kByRouting, kEqual, kShared };

// How an engine that walks packets cuts messages and what its switches are like; others have no such choice.
// Source of the defaults: Hoefler et al., HammingMesh (SC 2022), appendix F.
struct PacketOptions {
  int64_t packet_bytes = 8192;                // messages are cut into; the last may be smaller
  int64_t flit_bytes = 256;                   // that a switch waits for before it passes a packet on; 0: for none
  int64_t buffer_bytes = 32'000'000;          // of a port, for what comes in
  int32_t num_vcs = 0;                        // virtual channels of a link; 0: as many as the routing takes
  int32_t crossbar_speedup = 2;               // outputs that one port's buffer may feed at once
  SimTime buffer_latency = SimTime::never();  // from the input of a switch to its output; never(): the fabric's own
  SpareChannels spare_vcs = SpareChannels::kOutput;
  BufferParts buffer_parts = BufferParts::kByRouting;
  bool enable_skip = false;  // replay messages that went the same way before instead of walking their packets
  bool operator==(const PacketOptions& other) const;
  bool operator!=(const PacketOptions& other) const { return !(*this == other); }
};

// Counts up to now.
struct NetworkStats {
  std::vector<double> link_bytes;   // that crossed each link
  std::vector<double> link_busy_s;  // in which it carried at least one transfer
  int64_t num_active = 0;           // transfers that are being sent
  int64_t num_solves = 0;           // times that rates were computed anew
};

class Network : public routing::LinkBacklog {
 public:
  // Registers the links that transfers may take; equal routes may be registered once and used by many transfers.
  // `name` tells routes apart whatever the order of their registration: transfers that end together do so in its
  // order, so that what follows is reproducible.
  // Engines see routes of one lane; planes that differ are split before them (StripedNetwork).
  // REQUIRES: every link exists and is not removed, shares > 0.
  virtual RouteId add_route(const routing::Route& route, uint64_t name) = 0;

  // The links of a route, in its order; empty where it is divided as it goes.
  virtual std::vector<int32_t> links_of(RouteId /*route*/) const { return {}; }

  // The same with the share of a transfer's bytes that each carries, of an engine that runs flows; others do not tell.
  virtual std::vector<routing::LinkShare> shares_of(RouteId /*route*/) const { return {}; }

  // What transfers change may take effect up to `share` of their own duration later, together with what others change
  // meanwhile; 0, the default, is exact. Before the first transfer.
  // Throws: ConfigError for an engine that has no such choice, and for a share that is not 0 or more and below 1.
  virtual void set_tolerance(double /*share*/) {
    throw ConfigError("tolerance is set, but this engine is exact only; leave it at 0, or take fidelity=flow");
  }

  // Of an engine that walks packets, before the first route.
  // Throws: ConfigError for any other engine unless they are the defaults, and for values out of range.
  virtual void set_packets(const PacketOptions& options);

  // Starts a transfer now. bytes == 0 is sent at once and delivered after the route's latency.
  // The id is valid until the transfer is sent or cancelled; of an engine that walks packets, until it is delivered or
  // cancelled.
  virtual TransferId start(const Transfer& transfer) = 0;

  // A transfer that started earlier, alone on its links, and has run at its peak since, none of it counted yet.
  // REQUIRES: the engine is exact_when_alone; it is still being sent now, and no other transfer is on its links.
  virtual TransferId resume(const Transfer& transfer, SimTime started) = 0;

  // Takes a transfer off its links; its client hears no more of it. What was sent stays counted: packets that have left
  // their source go on to their end.
  virtual void cancel(TransferId transfer) = 0;

  // Moves the remaining bytes of a transfer onto another route. Packets under way go on as they were sent; those that
  // have no working link to go on over are lost, and sent again on the other route.
  virtual void set_route(TransferId transfer, RouteId route) = 0;

  // Changes a link's capacity [bytes/s] from now on; 0 stalls its transfers.
  // Throws: ConfigError for a link that does not exist or is removed, or a capacity below 0.
  virtual void set_capacity(int32_t link, double bytes_per_s) = 0;

  // Adds links; returns the id of the first, the others follow.
  virtual int32_t add_links(const std::vector<EngineLink>& links) = 0;

  // Takes links away for good: transfers on them stall until they are given another route. Ids are not used again,
  // what the links carried stays counted.
  // Throws: ConfigError for a link that does not exist or is removed.
  virtual void remove_links(const std::vector<int32_t>& links) = 0;

  // Bytes that a transfer of `bytes` puts on its source's links, all planes of its lanes together: rounded up per
  // plane.
  virtual int64_t carried_bytes(RouteId /*route*/, int64_t bytes) const { return bytes; }

  // Bytes that a transfer has still to send, as of now.
  virtual double backlog(TransferId transfer) const = 0;

  // Bytes that the transfers on a link have still to send over it. Cost: O(transfers on it).
  double bytes_waiting(int32_t link) const override = 0;

  // True if the transfer is being sent, but so slowly that at this rate it is not through by the end of simulated time.
  virtual bool is_endless(TransferId transfer) const = 0;

  // Since when nothing carries a transfer that is being sent, as a link of its route has no capacity; never() if
  // something does, and from an engine that does not tell. Of one over several planes: a part of it.
  virtual SimTime stands_since(TransferId /*transfer*/) const { return SimTime::never(); }

  // Of all transfers over routes between two accelerators. Cost: O(transfers that are being sent).
  virtual double backlog(int32_t src, int32_t dst) const = 0;

  virtual NetworkStats stats() const = 0;

  // What links carried that did not arrive; none of engines that move bytes over all links of a route at once.
  virtual std::vector<routing::Stray> strays() const { return {}; }

  // What a reader of results should know of the run so far, in a sentence; empty: nothing.
  virtual std::string note() const { return {}; }

  // Why nothing moves, where nothing can any more: a circle of virtual channels whose packets wait for each other.
  // Empty: not for that reason.
  virtual std::string describe_stall() const { return {}; }

  virtual int32_t num_links() const = 0;
};

}  // namespace rostam::network
