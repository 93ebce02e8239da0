// SkippingNetwork: the packet tier, with packets.skip in front of it (episodes.h); without, the packet network as it
// is. What changes the network, or asks for what is under way, has all packets walked first. Example:
// make_network("packet", queue, links, client)->set_packets(options)
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "packet/episodes.h"
#include "packet/packet_network.h"

namespace rostam::packet {

class SkippingNetwork : public network::Network, private network::NetworkClient {
 public:
  // `queue` and `client` must outlive the network. links: LinkTable::for_packets.
  SkippingNetwork(EventQueue& queue, const network::LinkTable& links, network::NetworkClient& client)
      : queue_(queue), client_(client), packets_(queue, links, *this) {}

  void set_packets(const network::PacketOptions& options) override;
  network::RouteId add_route(const routing::Route& route, uint64_t name) override {
    return packets_.add_route(route, name);
  }
  std::vector<int32_t> links_of(network::RouteId route) const override { return packets_.links_of(route); }
  network::TransferId start(const network::Transfer& transfer) override;
  network::TransferId resume(const network::Transfer& transfer, SimTime started) override {
    return packets_.resume(transfer, started);
  }
  void cancel(network::TransferId message) override;
  void set_route(network::TransferId message, network::RouteId route) override;
  void set_capacity(int32_t link, double bytes_per_s) override;
  int32_t add_links(const std::vector<network::EngineLink>& links) override;
  void remove_links(const std::vector<int32_t>& links) override;
  double backlog(network::TransferId message) const override { return packets_.backlog(walked(message)); }
  bool is_endless(network::TransferId message) const override { return packets_.is_endless(message); }
  double backlog(int32_t src, int32_t dst) const override;
  double bytes_waiting(int32_t link) const override;
  network::NetworkStats stats() const override;
  std::vector<routing::Stray> strays() const override { return packets_.strays(); }
  std::string note() const override;
  std::string describe_stall() const override { return packets_.describe_stall(); }
  int32_t num_links() const override { return packets_.num_links(); }

 private:
  void on_sent(uint64_t token) override { episodes_ == nullptr ? client_.on_sent(token) : episodes_->on_sent(token); }
  void on_delivered(uint64_t token) override {
    episodes_ == nullptr ? client_.on_delivered(token) : episodes_->on_delivered(token);
  }
  network::TransferId walked(network::TransferId message) const {
    return episodes_ == nullptr ? message : episodes_->walked(message);
  }
  void walk_all() const {
    if (episodes_ != nullptr) episodes_->walk_all();
  }
  void stop() const {
    if (episodes_ != nullptr) episodes_->stop();
  }

  EventQueue& queue_;
  network::NetworkClient& client_;
  PacketNetwork packets_;
  std::unique_ptr<Episodes> episodes_;  // with packets.skip
};

}  // namespace rostam::packet
