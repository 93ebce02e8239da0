// Messenger: a session's messages, from when they are made until they arrive, each with the route of its channel. A
// Carrier takes them over the network.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/carrier.h"
#include "runtime/channel_routes.h"
#include "runtime/ledger.h"
#include "runtime/message.h"
#include "runtime/options.h"

namespace rostam::runtime {

class Messenger : public CarrierClient {
 public:
  Messenger(const folding::WeightedSystem& system, const routing::RouteTable& routes, const SessionOptions& options,
            EventQueue& queue, Ledger& ledger, routing::EndPoints& end_points, MessageClient& client);

  void watch(RouteWatcher& watcher) {
    watcher_ = &watcher;
    routes_.watch(watcher);
  }

  // A fresh message from a simulated device to a peer of its slot, or through a region (workload::channel_to); valid
  // until the next call.
  int32_t make(int32_t source, int32_t slot, int32_t peer);
  // Sets what a message carries, by a protocol of the graph or none (-1).
  void load(int32_t message, int64_t bytes, int32_t protocol);
  Message& operator[](int32_t message) { return messages_[message]; }

  // A message without a route waits for one, if the route table lets it.
  void send(int32_t message);
  // Puts a message on the network that began to be sent at `started`, alone on its links.
  void resume(int32_t message, SimTime started);
  // The message has left its source; it arrives at `time`.
  void deliver_at(int32_t message, SimTime time) { carrier_.deliver_at(message, messages_[message], time); }

  // The messages of a job are given up: what has left their sources and not arrived is lost.
  void cut(int32_t job);

  ChannelRoutes& routes() { return routes_; }
  Carrier& carrier() { return carrier_; }

  int32_t num_parcels() const override { return static_cast<int32_t>(messages_.size()); }
  Parcel& parcel(int32_t message) override { return messages_[message]; }
  void on_sent(int32_t message) override;
  void on_delivered(int32_t message) override;
  network::RouteId route_of(int32_t message) override { return route_of(messages_[message]); }
  void on_new_route(int32_t src, int32_t dst) override { routes_.forget(src, dst); }
  void on_new_offers() override { routes_.forget_all(); }
  network::RouteId add_route(int32_t message, const routing::Route& route) override;
  Ends ends_of(int32_t message) const override;
  Purpose purpose_of(int32_t message) const override;
  std::string describe(int32_t message) const override;
  void count_wire(const Parcel& parcel, double bytes, WireBytes& wire) const override;

 private:
  void free(int32_t message);
  bool is_inside_server(const Message& message) const;
  int64_t received_bytes(const Message& message) const;
  void cut_message(int32_t message);
  network::RouteId route_of(const Message& message) {
    return routes_.route_of(message.source, message.slot, message.peer, message.wire_bytes);
  }

  const folding::WeightedSystem& system_;
  Ledger& ledger_;
  MessageClient& client_;
  RouteWatcher* watcher_ = nullptr;
  Carrier carrier_;
  ChannelRoutes routes_;
  std::vector<Message> messages_;
  std::vector<int32_t> free_;
};

}  // namespace rostam::runtime
