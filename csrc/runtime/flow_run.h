// FlowRun: given flows over a system's links, without devices or dependencies; capacities and paths may change.
// Example: FlowRun(routes, num_accelerators, flows, {}, {}, 0, "flow").run() gives when every flow was sent and
// delivered.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "network/registry.h"
#include "routing/end_points.h"
#include "routing/route_table.h"
#include "runtime/control_host.h"
#include "runtime/member_event.h"

namespace rostam::runtime {

struct FlowSpec {
  int32_t src = 0;
  int32_t dst = 0;
  int64_t bytes = 0;
  SimTime start;
  double rate_cap = std::numeric_limits<double>::infinity();  // over all planes [bytes/s]
  SimTime stop = SimTime::never();                            // cut off then, if it is still sending
};

// From `time` on `flow`, or what is left of it, takes the path that `hash` selects.
struct RerouteEvent {
  SimTime time;
  int32_t flow = 0;
  uint64_t hash = 0;
};

struct FlowRunResult {
  std::vector<int64_t> sent_ps;       // last byte has left
  std::vector<int64_t> delivered_ps;  // sent + alpha; -1 as sent_ps where the flow was cut off
  std::vector<double> bytes_left;     // of flows cut off, else 0
  std::vector<double> link_bytes;     // per engine link
  int64_t num_solves = 0;
  std::vector<std::string> checks;  // conservation laws that were checked and held
};

class FlowRun : public network::NetworkClient, public ControlTarget {
 public:
  // Throws: ConfigError for accelerators, links, flows or bytes out of range, NoRouteError for a cut pair.
  FlowRun(const routing::RouteTable& routes, int32_t num_accelerators, std::vector<FlowSpec> flows,
          std::vector<std::unique_ptr<control::Controller>> controllers, std::vector<RerouteEvent> reroutes,
          uint64_t seed, const std::string& fidelity);

  // Throws: DeadlockError if flows are left on links of capacity 0.
  FlowRunResult run();

  void on_sent(uint64_t token) override;
  void on_delivered(uint64_t token) override;
  network::Network& network() override { return *network_; }
  network::NetworkStats stats() override { return network_->stats(); }
  int32_t simulated_link(int32_t link) const override { return link; }
  void on_new_route(int32_t src, int32_t dst) override;
  // There are no jobs: flows of a failed accelerator stand still.
  std::vector<int32_t> cut_failed(const Faults&) override { return {}; }
  void restart(int32_t, SimTime, int32_t, const std::vector<int32_t>&, const Faults&) override { throw_no_jobs(); }
  std::vector<int32_t> accelerators_of(int32_t) const override { throw_no_jobs(); }
  int32_t num_iterations_done(int32_t) const override { throw_no_jobs(); }
  void on_new_offers() override {}  // a flow's route is asked for when it starts

 private:
  enum class Kind : uint64_t { kStart = 0, kReroute = 1, kStop = 2 };
  [[noreturn]] static void throw_no_jobs();
  void on_event(uint64_t payload);
  void schedule(SimTime time, Kind kind, size_t index);
  network::RouteId add_route(int32_t flow);
  void start(size_t flow);
  void move(size_t flow);
  void stop(size_t flow);
  void tell(control::EventKind kind, size_t flow);
  void check_all_arrived() const;
  void check_accelerators();

  routing::RouteTable routes_;
  size_t num_links_;  // without those that are added
  std::vector<FlowSpec> flows_;
  std::vector<std::unique_ptr<control::Controller>> controllers_;
  std::vector<RerouteEvent> reroutes_;
  std::vector<uint64_t> hashes_;  // per flow: selects its path, by the seed or the last reroute
  routing::EndPoints end_points_;
  EventQueue queue_;
  MemberEvent<FlowRun> events_;
  std::unique_ptr<network::Network> network_;
  ControlHost control_;
  std::vector<network::TransferId> ids_;
  std::vector<uint8_t> is_active_;
  std::vector<uint8_t> is_cut_;
  std::vector<double> carried_;  // bytes that crossed the links of one plane of each class
  FlowRunResult result_;
};

}  // namespace rostam::runtime
