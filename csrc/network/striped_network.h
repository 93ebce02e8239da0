// StripedNetwork: an engine behind routes with lanes. A message over planes that differ is one transfer to its client
// and one on each lane to the engine; it is sent, and delivered, when the slowest of them is.
// Example: route with two lanes of 2 and 1 GB/s, 300 bytes: 200 and 100 bytes go out at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "network/network.h"

namespace rostam::network {

class StripedNetwork : public Network, private NetworkClient {
 public:
  using MakeEngine = std::unique_ptr<Network> (*)(EventQueue&, const LinkTable&, NetworkClient&);

  // walks_packets: the engine's trait.
  StripedNetwork(MakeEngine make, bool walks_packets, EventQueue& queue, const LinkTable& links, NetworkClient& client);

  RouteId add_route(const routing::Route& route, uint64_t name) override;
  std::vector<int32_t> links_of(RouteId route) const override;
  void set_tolerance(double share) override { engine_->set_tolerance(share); }
  void set_packets(const PacketOptions& options) override { engine_->set_packets(options); }
  TransferId start(const Transfer& transfer) override;
  // REQUIRES: a route without lanes.
  TransferId resume(const Transfer& transfer, SimTime started) override;
  void cancel(TransferId transfer) override;
  // Throws: ConfigError over lanes where messages are packets.
  void set_route(TransferId transfer, RouteId route) override;
  void set_capacity(int32_t link, double bytes_per_s) override { engine_->set_capacity(link, bytes_per_s); }
  int32_t add_links(const std::vector<EngineLink>& links) override { return engine_->add_links(links); }
  void remove_links(const std::vector<int32_t>& links) override { engine_->remove_links(links); }
  int64_t carried_bytes(RouteId route, int64_t bytes) const override;
  double backlog(TransferId transfer) const override;
  double backlog(int32_t src, int32_t dst) const override;
  double bytes_waiting(int32_t link) const override { return engine_->bytes_waiting(link); }
  double bytes_beside(int32_t link, double alone_s) const override { return engine_->bytes_beside(link, alone_s); }
  bool is_endless(TransferId transfer) const override;
  SimTime stands_since(TransferId transfer) const override;
  NetworkStats stats() const override;
  std::vector<routing::Stray> strays() const override { return engine_->strays(); }
  std::string note() const override { return engine_->note(); }
  std::string describe_stall() const override { return engine_->describe_stall(); }
  int32_t num_links() const override { return engine_->num_links(); }

 private:
  struct StripedRoute {
    routing::Route route;  // its links stay with the engine
    std::vector<RouteId> parts;
  };
  struct Part {
    TransferId whole = 0;
    TransferId engine_id = 0;
    int32_t num_planes = 1;
    bool is_sent = false;
  };
  struct Whole {
    uint64_t token = 0;
    double rate_cap = 0;
    SimTime extra_latency;
    RouteId route = 0;
    int32_t num_unsent = 0, num_undelivered = 0;
    bool is_active = false;     // not yet sent
    bool is_cancelled = false;  // parts that were sent before still arrive
    std::vector<uint32_t> parts;
  };

  void on_sent(uint64_t part) override;
  void on_delivered(uint64_t part) override;
  TransferId new_whole(const Transfer& transfer);
  void start_parts(TransferId whole, int64_t bytes);
  void stop_parts(TransferId whole);
  uint32_t new_part(TransferId whole, int32_t num_planes);
  void release_if_over(TransferId whole);

  NetworkClient& client_;
  bool walks_packets_;
  std::unique_ptr<Network> engine_;
  std::vector<StripedRoute> routes_;
  std::vector<Whole> wholes_;
  std::vector<Part> parts_;
  std::vector<TransferId> free_wholes_;
  std::vector<uint32_t> free_parts_;
  int64_t num_active_ = 0;
};

}  // namespace rostam::network
