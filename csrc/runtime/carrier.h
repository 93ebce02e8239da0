// Carrier: takes parcels, a session's messages or given flows, over the network. Keeps those under way, moves them onto
// other routes, lets those without one wait, counts what crosses links and tells controllers.
// Example: carrier.send(7, parcel, route); the client hears on_sent(7), then on_delivered(7).
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "control/controller.h"
#include "network/registry.h"
#include "routing/route_table.h"
#include "runtime/member_event.h"
#include "runtime/wire_bytes.h"

namespace rostam::runtime {

enum class ParcelState : uint8_t {
  kNone,     // not handed over yet, or cut
  kWaiting,  // for a route
  kSending,  // on the network
  kSent,     // its last byte has left its source; it arrives later
  kArrived,
};

// What is carried: the client's part, then the carrier's own.
struct Parcel {
  int32_t source = 0, target = 0;                             // ends that its bytes on the wire are counted for
  int64_t bytes = 0;                                          // over all planes
  int64_t wire_bytes = 0;                                     // that they put on links, a protocol's own included
  double rate_cap = std::numeric_limits<double>::infinity();  // on the simulated plane [bytes/s]
  SimTime extra_latency;                                      // besides the route's
  bool has_tree = false;                                      // a region's; controllers hear nothing of it

  ParcelState state = ParcelState::kNone;
  network::RouteId route = network::kNoRoute;
  network::TransferId transfer = 0;
  double carried = 0;  // bytes that it puts on links, its lanes' together
};

// Whose parcels they are. It keeps them, numbered from 0; a place may be used again once its parcel is delivered or
// cut.
class CarrierClient {
 public:
  virtual ~CarrierClient() = default;
  virtual int32_t num_parcels() const = 0;
  virtual Parcel& parcel(int32_t number) = 0;
  virtual void on_sent(int32_t parcel) = 0;
  virtual void on_delivered(int32_t parcel) = 0;
  // The route that a parcel takes from now on; kNoRoute where there is none.
  virtual network::RouteId route_of(int32_t parcel) = 0;
  // Other routes hold from now on: between two accelerators; for all, since capacities have changed that split messages
  // over planes that differ, or links are gone.
  virtual void on_new_route(int32_t src, int32_t dst) = 0;
  virtual void on_new_offers() = 0;
  // A given route for a parcel, as the network knows it.
  virtual network::RouteId add_route(int32_t parcel, const routing::Route& route) = 0;
  // The accelerators that it goes from and to.
  struct Ends {
    int32_t src, dst;
  };
  virtual Ends ends_of(int32_t parcel) const = 0;
  // What it is part of: of a job the iteration and the kind of groups (TaskGraph::categories); -1 for flows by
  // themselves.
  struct Purpose {
    int32_t job = -1, iteration = -1, category = -1;
  };
  virtual Purpose purpose_of(int32_t parcel) const = 0;
  // Counts bytes that a parcel has put on links, by who sent and who received them.
  virtual void count_wire(const Parcel& parcel, double bytes, WireBytes& wire) const {
    wire.count(parcel.source, parcel.target, bytes);
  }
  // For errors, where it goes from and to included.
  virtual std::string describe(int32_t parcel) const = 0;
};

// Hears of parcels that start, end or wait, for controllers.
class ParcelListener {
 public:
  virtual ~ParcelListener() = default;
  virtual void tell(const control::Event& event) = 0;
};

// Hears of whatever may make parcels stand still, or go on.
class StandstillWatcher {
 public:
  virtual ~StandstillWatcher() = default;
  virtual void on_begin(int32_t parcel) = 0;  // it starts, or waits for a route
  virtual void on_end(int32_t parcel) = 0;    // it has left, or is cut
  virtual void on_change() = 0;               // links have other capacities, or parcels other routes
};

class Carrier : public network::NetworkClient {
 public:
  // `routes`, `queue` and `client` must outlive it. weights: of the ends of parcels, as WireBytes.
  Carrier(const std::string& fidelity, const network::LinkTable& links, const routing::RouteTable& routes,
          EventQueue& queue, std::vector<int64_t> weights, CarrierClient& client);

  // From now on the listener hears of parcels.
  void tell(ParcelListener& listener) { listener_ = &listener; }
  void watch(StandstillWatcher& watcher) { watcher_ = &watcher; }

  // Puts a parcel on the network; with kNoRoute it waits for a route.
  void send(int32_t number, Parcel& parcel, network::RouteId route);
  // The same for one that began to be sent at `started`, alone on its links; no observer is told.
  void resume(int32_t number, Parcel& parcel, network::RouteId route, SimTime started);
  // The parcel has left its source; it arrives at `time`.
  void deliver_at(int32_t number, Parcel& parcel, SimTime time);

  // Gives up a parcel that waits or is being sent. Returns the bytes of it that have left its source.
  int64_t cut(int32_t number);
  // Gives up one that has left its source. Returns false if it arrives nevertheless.
  bool cut_sent(int32_t number);

  // The parcel's route may be another one now: it is asked for, and what is left of the parcel moves onto it, or it
  // starts if it has waited; where messages are packets, so does what is lost of one that has been sent. Without a
  // route it stays where it is.
  void move(int32_t number);
  // The same of all parcels between two accelerators. REQUIRES: the route table has the new route.
  void move(int32_t src, int32_t dst);
  // The same of all parcels.
  void move_all();
  // What is left of a parcel that waits or is being sent takes a given route, until it is moved again. Returns false
  // for one that does neither.
  bool move_onto(int32_t number, const routing::Route& route);
  // Capacities of links have changed, or links are gone.
  void on_new_capacities() {
    if (watcher_ != nullptr) watcher_->on_change();
  }
  // Whether nothing carries a parcel that waits or is being sent.
  bool stands_still(int32_t number);

  // For parcels that start from now on.
  void renew_offers() { client_.on_new_offers(); }

  // Bytes that a parcel that is being sent has still to send on the simulated plane, its lanes' together.
  double backlog(const Parcel& parcel) const { return network_->backlog(parcel.transfer); }

  // What a parcel that is being sent puts on each link of its route; empty where the engine does not tell.
  std::vector<control::LinkBytes> link_bytes_of(int32_t number) const;

  // Of every parcel that waits or is being sent, over all planes.
  std::vector<control::Backlog> backlogs() const;

  // What each plane carries of a message.
  int64_t wire_bytes(int64_t bytes) const { return route_table_.wire_bytes(bytes); }
  int32_t num_planes() const { return route_table_.num_alike(); }

  network::Network& network() { return *network_; }
  const network::Network& network() const { return *network_; }
  WireBytes& wire() { return wire_; }
  // Counts what parcels under way have carried so far; for the end of a run.
  void count_under_way();
  // Where nothing else can happen. Throws: ConfigError for a parcel that would not be through by the end of simulated
  // time, NoRouteError for one that waits for a route.
  void throw_if_stuck();

  void on_sent(uint64_t token) override;
  void on_delivered(uint64_t token) override;
  void fetch_delivered(uint64_t token) const override {
    __builtin_prefetch(&client_.parcel(static_cast<int32_t>(token)), 1);
  }

 private:
  void start(int32_t number, Parcel& parcel, network::RouteId route);
  void take(int32_t number, Parcel& parcel, network::RouteId route);
  void note(int32_t number, bool is_under_way) {
    if (number >= static_cast<int32_t>(is_under_way_.size())) is_under_way_.resize(static_cast<size_t>(number) + 1, 0);
    is_under_way_[number] = is_under_way;
  }
  void tell(control::EventKind kind, int32_t number, const Parcel& parcel, std::vector<int32_t> links = {},
            std::vector<int32_t> left = {});

  const routing::RouteTable& route_table_;
  bool walks_packets_;  // EngineTraits
  EventQueue& queue_;
  CarrierClient& client_;
  ParcelListener* listener_ = nullptr;
  StandstillWatcher* watcher_ = nullptr;
  MemberEvent<Carrier> late_arrivals_;
  std::unique_ptr<network::Network> network_;
  std::vector<uint8_t> is_under_way_;  // of each parcel: whether it waits or is being sent
  WireBytes wire_;
};

}  // namespace rostam::runtime
