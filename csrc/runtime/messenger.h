// Messenger: puts messages on the network. Keeps those under way, and what they carried.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "network/registry.h"
#include "runtime/channel_routes.h"
#include "runtime/control_host.h"
#include "runtime/ledger.h"
#include "runtime/member_event.h"
#include "runtime/message.h"
#include "runtime/options.h"

namespace rostam::runtime {

class Messenger : public network::NetworkClient {
 public:
  Messenger(const folding::WeightedSystem& system, const routing::RouteTable& routes, const SessionOptions& options,
            EventQueue& queue, Ledger& ledger, routing::EndPoints& end_points, MessageClient& client);

  void watch(RouteWatcher& watcher) {
    watcher_ = &watcher;
    routes_.watch(watcher);
  }
  // Tells controllers of flows.
  void tell(ControlHost& control) { control_ = &control; }

  // A fresh message from a simulated device to a peer of its slot; valid until the next call.
  int32_t make(int32_t source, int32_t slot, int32_t peer);
  Message& operator[](int32_t message) { return messages_[message]; }

  // A message without a route waits for one, if the route table lets it.
  void send(int32_t message);
  // Puts a message on the network that began to be sent at `started`, alone on its links.
  void resume(int32_t message, SimTime started);
  // The message has left its source; it arrives at `time`.
  void deliver_at(int32_t message, SimTime time);

  ChannelRoutes& routes() { return routes_; }
  // The route table has another route between two accelerators: messages under way move onto it, those that wait for
  // one start; where it has none any more they stay where they are. REQUIRES: no watcher.
  void move(int32_t src, int32_t dst);

  // What each plane carries of a message.
  int64_t wire_bytes(int64_t bytes) const { return route_table_.wire_bytes(bytes); }

  // The messages of a job are given up: what has left their sources and not arrived is lost.
  void cut(int32_t job);

  network::Network& network() { return *network_; }
  // Counts what messages under way have carried so far; for the end of a run.
  void count_under_way();
  // Where nothing else can happen. Throws: ConfigError for a message that would not be through by the end of simulated
  // time, NoRouteError for one that waits for a route.
  void throw_if_stuck(SimTime now) const;

  void on_sent(uint64_t token) override;
  void on_delivered(uint64_t token) override;

 private:
  void free(int32_t message);
  void cut_message(int32_t message);
  void tell_controllers(control::EventKind kind, const Message& message);
  network::RouteId route_of(const Message& message) {
    return routes_.route_of(message.source, message.slot, message.peer);
  }

  const folding::WeightedSystem& system_;
  const routing::RouteTable& route_table_;
  const SessionOptions& options_;
  EventQueue& queue_;
  Ledger& ledger_;
  MessageClient& client_;
  RouteWatcher* watcher_ = nullptr;
  ControlHost* control_ = nullptr;
  MemberEvent<Messenger> late_arrivals_;
  std::unique_ptr<network::Network> network_;
  ChannelRoutes routes_;
  std::vector<Message> messages_;
  std::vector<int32_t> free_;
};

}  // namespace rostam::runtime
