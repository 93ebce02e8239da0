// ControlHost: runs controllers beside a simulation and lets them act on it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "control/controller.h"
#include "network/network.h"
#include "routing/end_points.h"
#include "routing/route_table.h"
#include "runtime/member_event.h"

namespace rostam::runtime {

// What controllers act on. Implemented by whoever owns the network.
class ControlTarget {
 public:
  virtual ~ControlTarget() = default;
  virtual network::Network& network() = 0;
  virtual network::NetworkStats stats() = 0;
  // The simulated link that stands for an engine link.
  virtual int32_t simulated_link(int32_t link) const = 0;
  // The route table has another route between two accelerators.
  virtual void on_new_route(int32_t src, int32_t dst) = 0;
  // Capacities that messages over planes that differ are split by have changed: for those that start from now on.
  virtual void on_new_offers() = 0;
};

class ControlHost {
 public:
  // All arguments must outlive it.
  ControlHost(std::vector<std::unique_ptr<control::Controller>>& controllers, EventQueue& queue, ControlTarget& target,
              routing::RouteTable& routes, routing::EndPoints& end_points);
  ~ControlHost();

  void begin();

  // Whether a controller subscribes to any of the kinds.
  bool hears(uint32_t kinds) const { return (subscriptions_ & kinds) != 0; }
  void tell(const control::Event& event);

 private:
  class Plane;
  void wake(uint64_t controller);
  void set_capacity(int32_t link, double bytes_per_s);
  int32_t add_link(int32_t src, int32_t dst, double bytes_per_s);

  std::vector<std::unique_ptr<control::Controller>>& controllers_;
  EventQueue& queue_;
  ControlTarget& target_;
  routing::RouteTable& routes_;
  routing::EndPoints& end_points_;
  uint32_t subscriptions_ = 0;
  MemberEvent<ControlHost> wakes_;
  std::vector<std::unique_ptr<Plane>> planes_;  // of each controller
};

}  // namespace rostam::runtime
