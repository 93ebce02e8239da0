// ControlHost: runs controllers during a simulation and lets them act on it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "control/controller.h"
#include "network/network.h"
#include "routing/end_points.h"
#include "runtime/faults.h"
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
  // Accelerators have failed: what ran on them is cut. Returns the jobs that are.
  virtual std::vector<int32_t> cut_failed(const Faults& faults) = 0;
  // As those of ControlPlane.
  virtual void restart(int32_t job, SimTime when, int32_t from_iteration, const std::vector<int32_t>& accelerators,
                       const Faults& faults) = 0;
  virtual std::vector<int32_t> accelerators_of(int32_t job) const = 0;
  virtual int32_t num_iterations_done(int32_t job) const = 0;
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
  void remove_links(const std::vector<int32_t>& links);
  void change_capacity(int32_t link);
  // What a controller may ask for while a message or task is being handled waits until that is through.
  using Action = std::function<void()>;
  void defer(Action action);
  void act(uint64_t);
  void fail(const control::Part& part);
  void repair(const control::Part& part);

  std::vector<std::unique_ptr<control::Controller>>& controllers_;
  EventQueue& queue_;
  ControlTarget& target_;
  routing::RouteTable& routes_;
  routing::EndPoints& end_points_;
  Faults faults_;
  uint32_t subscriptions_ = 0;
  MemberEvent<ControlHost> wakes_, acts_;
  std::deque<Action> actions_;
  std::vector<std::unique_ptr<Plane>> planes_;  // of each controller
};

}  // namespace rostam::runtime
