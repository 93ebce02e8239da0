// ControlHost: runs controllers during a simulation and lets them act on it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "routing/end_points.h"
#include "runtime/carrier.h"
#include "runtime/faults.h"

namespace rostam::runtime {

using Controllers = std::vector<std::unique_ptr<control::Controller>>;

// What controllers may touch, all together. Of those that choose paths or read messages these are the links between
// switches.
folding::Footprint footprint_of(const Controllers& controllers, const routing::RouteTable& routes);
// Whether all of them are.
bool are_settled(const Controllers& controllers);
// Throws: ConfigError for links that do not exist.
void check_footprint(const folding::Footprint& footprint, const routing::RouteTable& routes);

// What controllers act on in addition to the network. Implemented by whoever runs jobs, or flows, over it.
class ControlTarget {
 public:
  virtual ~ControlTarget() = default;
  virtual network::NetworkStats stats() = 0;
  // The simulated link that stands for an engine link.
  virtual int32_t simulated_link(int32_t link) const = 0;
  // Accelerators have failed: what ran on them is cut. Returns the jobs that are.
  virtual std::vector<int32_t> cut_failed(const Faults& faults) = 0;
  // As those of ControlPlane.
  virtual void restart(int32_t job, SimTime when, int32_t from_iteration, const std::vector<int32_t>& accelerators,
                       const Faults& faults) = 0;
  virtual void hold(int32_t job, int32_t iteration, SimTime until) = 0;
  virtual std::vector<int32_t> accelerators_of(int32_t job) const = 0;
  virtual int32_t num_jobs() const = 0;
  virtual int32_t num_iterations_done(int32_t job) const = 0;
};

class ControlHost : public ParcelListener {
 public:
  // All arguments must outlive it. It listens to the carrier if a controller does.
  ControlHost(Controllers& controllers, EventQueue& queue, ControlTarget& target, Carrier& carrier,
              routing::RouteTable& routes, routing::EndPoints& end_points);
  ~ControlHost() override;

  void begin();

  // Whether a controller subscribes to any of the kinds.
  bool hears(uint32_t kinds) const { return (subscriptions_ & kinds) != 0; }
  void tell(const control::Event& event) override;

  // What failed first of that which a link, or anything, suffers from now: its number; -1 for nothing.
  int32_t first_failure_of(int32_t link) const { return faults_.first_failure_of(link); }
  int32_t first_failure() const { return faults_.first_failure(); }
  // Whether a link has no capacity now.
  bool has_dark_links() const { return faults_.has_dark_links(); }
  // All that failed, by number.
  const std::vector<workload::FailedPart>& failed() const { return failed_; }

  // Of each controller, at the end of a run.
  std::vector<workload::Report> report() const;

 private:
  class Plane;
  void wake(uint64_t controller);
  void set_capacity(int32_t link, double bytes_per_s);
  int32_t add_link(int32_t src, int32_t dst, double bytes_per_s);
  void remove_links(const std::vector<int32_t>& links);
  void change_capacity(int32_t link);
  void change_network(int32_t link);
  // What a controller may ask for while a message or task is being handled waits until that is through.
  using Action = std::function<void()>;
  void defer(Action action);
  void act(uint64_t);
  void fail(const control::Part& part);
  void repair(const control::Part& part);
  void renew_routes();
  const std::vector<routing::Path>& paths(int32_t src, int32_t dst);
  void set_path(int32_t src, int32_t dst, const routing::Path& path, int64_t least_bytes);
  void unset_path(int32_t src, int32_t dst);
  bool move_message(int32_t flow, int32_t src, int32_t dst, const routing::Path& path);
  routing::Route route_over(int32_t src, int32_t dst, const routing::Path& path);

  Controllers& controllers_;
  control::ScheduleTrial trial_;
  EventQueue& queue_;
  ControlTarget& target_;
  Carrier& carrier_;
  routing::RouteTable& routes_;
  routing::EndPoints& end_points_;
  Faults faults_;
  std::shared_ptr<const routing::RoutePolicy> first_policy_;  // of the run: a pair's paths keep their places
  std::vector<workload::FailedPart> failed_;
  std::vector<int32_t> unknown_;  // links that have failed or been repaired since routes were renewed
  uint32_t subscriptions_ = 0;
  MemberEvent<ControlHost> wakes_, acts_;
  std::deque<Action> actions_;
  std::map<std::pair<int32_t, int32_t>, std::vector<routing::Path>> paths_;  // of pairs that were asked for
  std::vector<std::unique_ptr<Plane>> planes_;                               // of each controller
};

}  // namespace rostam::runtime
