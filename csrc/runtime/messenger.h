// Messenger: puts messages on the network. Keeps those under way, the route of every channel, and what they carried.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "network/registry.h"
#include "routing/end_points.h"
#include "routing/route_table.h"
#include "runtime/control_host.h"
#include "runtime/ledger.h"
#include "runtime/mailbox_key.h"
#include "runtime/member_event.h"
#include "runtime/options.h"
#include "runtime/tasks.h"

namespace rostam::runtime {

struct Message {
  int32_t source = 0;
  int32_t target = 0;  // simulated device
  int32_t peer = 0;    // the device of the graph that it stands for
  int32_t slot = 0;
  int64_t bytes = 0;
  int32_t category = 0;
  int32_t iteration = 0;
  CriticalPath::Ref origin;
  // Of a collective: the step of which one.
  int32_t step = 0;
  uint32_t occurrence = 0;
  bool is_synchronous = false;  // holds its sender until it is delivered
  bool is_ordered = false;      // the receiver counts what comes, whatever the step
  // Point to point: the task that sends it and where it arrives.
  bool is_send = false;
  TaskRef sender;
  MailboxKey mailbox;
  // On the network.
  network::RouteId route = 0;
  bool is_sending = false;
  network::TransferId transfer = 0;
  double carried = 0;  // bytes that it puts on links, its lanes' together
};

// Hears of messages. `message` is valid during the call only.
class MessageClient {
 public:
  virtual ~MessageClient() = default;
  virtual void on_sent(const Message& message) = 0;
  virtual void on_delivered(Message& message) = 0;
};

// Sees routes before messages take them: what computes collectives without messages must step aside for others'.
class RouteWatcher {
 public:
  virtual ~RouteWatcher() = default;
  virtual void on_new_route(network::RouteId route, const routing::Route& links, int32_t device, int32_t slot) = 0;
  virtual void before_send(network::RouteId route) = 0;
  virtual void after_sent(network::RouteId route) = 0;
};

class Messenger : public network::NetworkClient {
 public:
  Messenger(const folding::WeightedSystem& system, const routing::RouteTable& routes, const SessionOptions& options,
            EventQueue& queue, Ledger& ledger, routing::EndPoints& end_points, MessageClient& client);

  void watch(RouteWatcher& watcher) { watcher_ = &watcher; }
  // Tells controllers of flows.
  void tell(ControlHost& control) { control_ = &control; }

  // A fresh message from a simulated device to a peer of its slot; valid until the next call.
  int32_t make(int32_t source, int32_t slot, int32_t peer);
  Message& operator[](int32_t message) { return messages_[message]; }

  void send(int32_t message);
  // Puts a message on the network that began to be sent at `started`, alone on its links.
  void resume(int32_t message, SimTime started);
  // The message has left its source; it arrives at `time`.
  void deliver_at(int32_t message, SimTime time);

  // Messages from route.src to route.dst take it from now on, those under way too. REQUIRES: nobody watches.
  void set_route(const routing::Route& route);

  // The route of a channel, hashed once for each as a connection's five-tuple is.
  routing::Route make_route(int32_t device, int32_t slot, int32_t peer);
  // What each plane carries of a message.
  int64_t wire_bytes(int64_t bytes) const { return route_table_.wire_bytes(bytes); }

  network::Network& network() { return *network_; }
  // Counts what messages under way have carried so far; for the end of a run.
  void count_under_way();
  // Throws: ConfigError for a message that would not be through by the end of simulated time.
  void throw_if_endless(SimTime now) const;

  void on_sent(uint64_t token) override;
  void on_delivered(uint64_t token) override;

 private:
  static constexpr network::RouteId kNoRoute = std::numeric_limits<network::RouteId>::max();
  struct LastRoute {  // most slots have one peer
    int32_t peer = -1;
    network::RouteId route = kNoRoute;
  };
  void tell_controllers(control::EventKind kind, const Message& message);
  network::RouteId route_of(int32_t device, int32_t slot, int32_t peer);

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
  routing::EndPoints& end_points_;
  std::vector<Message> messages_;
  std::vector<int32_t> free_;
  std::map<std::pair<int32_t, int32_t>, routing::Route> set_routes_;  // by controllers, between accelerators
  std::vector<network::RouteId> routes_;                              // per channel
  std::vector<std::vector<LastRoute>> last_routes_;                   // per slot of every device
};

}  // namespace rostam::runtime
