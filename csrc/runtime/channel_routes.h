// ChannelRoutes: the route of every channel of a session, asked of the route table when its first message goes and
// registered with the network. Who changes the table says which channels to ask for again.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "folding/weighted_system.h"
#include "network/network.h"
#include "routing/end_points.h"
#include "routing/route_table.h"

namespace rostam::runtime {

// Sees routes before messages take them: what computes collectives without messages must step aside for others'.
class RouteWatcher {
 public:
  virtual ~RouteWatcher() = default;
  virtual void on_new_route(network::RouteId route, const routing::Route& links, int32_t device, int32_t slot) = 0;
  virtual void before_send(network::RouteId route) = 0;
  virtual void after_sent(network::RouteId route) = 0;
};

class ChannelRoutes {
 public:
  // All arguments must outlive it. seed: of hashed routes. detail: that the network needs of them.
  ChannelRoutes(const folding::WeightedSystem& system, const routing::RouteTable& table, uint64_t seed,
                routing::Detail detail, network::Network& network, routing::EndPoints& end_points);

  void watch(RouteWatcher& watcher) { watcher_ = &watcher; }

  // Of a message of num_bytes that starts now; kNoRoute where there is none and the table lets messages wait.
  network::RouteId route_of(int32_t device, int32_t slot, int32_t peer, int64_t num_bytes);

  // A given route for messages of a channel, registered once.
  network::RouteId add_route(int32_t device, int32_t slot, int32_t peer, const routing::Route& route);

  // What accelerators send and receive of a region's transfers, in the order of its members. REQUIRES: a route.
  const std::vector<routing::RouteEnd>& ends_of(int32_t device, int32_t slot, int32_t region_channel) const;

  // That of the table, not registered; hashed once for each channel as a connection's five-tuple is.
  // Throws: NoRouteError where there is none.
  routing::Route make_route(int32_t device, int32_t slot, int32_t peer);

  // The table may have other routes now: between two accelerators, from a device, for all.
  // REQUIRES: the system is not folded, and where a watcher relies on routes, the new ones cross the same of its links.
  void forget(int32_t src, int32_t dst);
  void forget_device(int32_t device);
  void forget_all();

 private:
  struct LastRoute {  // most slots have one peer
    int32_t peer = -1;
    network::RouteId route = network::kNoRoute;
  };
  struct Candidate {
    std::vector<routing::LinkShare> links;
    SimTime latency;
    network::RouteId id;
  };
  // Of one message, where messages of a channel take different routes: each is registered once.
  network::RouteId fresh_route(int32_t device, int32_t slot, int32_t peer, int64_t num_bytes);
  bool parts_by_size(int32_t device, int32_t peer) const;
  std::optional<routing::Route> find_route(int32_t device, int32_t slot, int32_t peer, int64_t num_bytes);
  std::optional<routing::Route> find_region_route(int32_t device, int32_t slot, int32_t region);
  network::RouteId first_route(int32_t device, int32_t slot, int32_t peer, workload::ChannelId channel);
  void forget_slot(int32_t device, int32_t slot, int32_t dst);
  void forget_channel(workload::ChannelId channel);

  const folding::WeightedSystem& system_;
  const routing::RouteTable& table_;
  uint64_t seed_;
  routing::Detail detail_;
  network::Network& network_;
  routing::EndPoints& end_points_;
  RouteWatcher* watcher_ = nullptr;
  std::vector<network::RouteId> routes_;  // per channel
  std::unordered_map<workload::ChannelId, std::vector<Candidate>> candidates_;
  std::unordered_map<workload::ChannelId, std::vector<routing::RouteEnd>> ends_;  // of regions' channels
  std::vector<std::vector<LastRoute>> last_routes_;                               // per slot of every device
};

}  // namespace rostam::runtime
