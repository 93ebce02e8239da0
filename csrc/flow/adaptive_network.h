// AdaptiveNetwork: the flow tier for messages that are divided over all paths of their routes. Whenever one starts or
// ends, or a capacity or path changes, rates and divisions are computed anew (adaptive_rates.h), for those that share
// links together; a FlowNetwork then carries every message over its division, at its rate.
// Divisions that make rates max-min fair keep them so if they are fixed: no other rates of theirs are fairer.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "flow/adaptive_rates.h"
#include "flow/flow_network.h"

namespace rostam::flow {

class AdaptiveNetwork : public network::Network, private network::NetworkClient {
 public:
  // `queue` and `client` must outlive the network.
  AdaptiveNetwork(EventQueue& queue, const network::LinkTable& links, network::NetworkClient& client);

  // Throws: ConfigError for a route that is not adaptive, as controllers set them.
  network::RouteId add_route(const routing::Route& route, uint64_t name) override;
  // Throws: ConfigError for a share above 0.
  void set_tolerance(double share) override;
  network::TransferId start(const network::Transfer& transfer) override;
  network::TransferId resume(const network::Transfer& transfer, SimTime started) override;
  void cancel(network::TransferId transfer) override;
  void set_route(network::TransferId transfer, network::RouteId route) override;
  void set_capacity(int32_t link, double bytes_per_s) override;
  int32_t add_links(const std::vector<network::EngineLink>& links) override;
  void remove_links(const std::vector<int32_t>& links) override;
  double backlog(network::TransferId transfer) const override;
  bool is_endless(network::TransferId transfer) const override;
  SimTime stands_since(network::TransferId transfer) const override;
  double backlog(int32_t src, int32_t dst) const override { return inner_.backlog(src, dst); }
  double bytes_waiting(int32_t link) const override { return inner_.bytes_waiting(link); }
  double bytes_beside(int32_t link, double alone_s) const override { return inner_.bytes_beside(link, alone_s); }
  network::NetworkStats stats() const override;
  int32_t num_links() const override { return inner_.num_links(); }

 private:
  struct AdaptiveRoute {
    uint32_t graph = 0;
    SimTime latency;
    uint64_t name = 0;
    int32_t src = -1, dst = -1;
  };
  // The paths of routes, each once.
  struct Graph {
    routing::Steps steps;
    std::vector<routing::LinkShare> even;
  };
  struct Message {
    uint64_t token = 0;
    network::RouteId route = 0;
    network::RouteId inner_route = 0;
    network::TransferId inner = 0;
    double rate_cap = 0;
    double rate = 0;  // that it was given last
    bool is_sending = false;
  };
  // {graph, cap, messages}: those that are alike.
  using Alike = std::tuple<uint32_t, double, uint32_t>;
  using Divisions = std::shared_ptr<const std::vector<Division>>;

  void on_sent(uint64_t message) override;
  void on_delivered(uint64_t message) override;
  uint32_t new_message();
  network::RouteId inner_route(const AdaptiveRoute& route, const std::vector<routing::LinkShare>& shares);
  void request();
  void divide(uint64_t payload);
  Divisions divisions(const std::vector<Alike>& alike);
  void give(uint32_t message, const Division& division);

  class Requests : public EventHandler {
   public:
    explicit Requests(AdaptiveNetwork& owner) : owner_(owner) {}
    void on_event(uint64_t payload) override { owner_.divide(payload); }

   private:
    AdaptiveNetwork& owner_;
  };

  EventQueue& queue_;
  network::NetworkClient& client_;
  Requests requests_;
  std::vector<double> capacities_;
  FlowNetwork inner_;
  std::vector<AdaptiveRoute> routes_;
  std::vector<Graph> graphs_;
  std::map<std::vector<int64_t>, uint32_t> graph_of_;  // by source, destination and hops
  std::vector<Message> messages_;
  std::vector<std::vector<routing::LinkShare>> shares_;  // of messages, as they were given
  std::vector<uint32_t> free_messages_;
  std::map<std::vector<Alike>, Divisions> known_;  // at these capacities
  size_t num_known_ = 0;                           // shares in them
  int64_t num_solves_ = 0;
  bool is_requested_ = false;
};

}  // namespace rostam::flow
