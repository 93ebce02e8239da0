// FlowRun: given flows over a system's links, without devices or dependencies; capacities and paths may change. The
// same Carrier takes them as takes a session's messages. Example: FlowRun(routes, num_accelerators, flows, {}, {},
// {}).run() gives when every flow was sent and delivered.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "routing/end_points.h"
#include "routing/route_table.h"
#include "runtime/carrier.h"
#include "runtime/control_host.h"

namespace rostam::runtime {

struct FlowSpec {
  int32_t src = 0;
  int32_t dst = 0;
  int64_t bytes = 0;
  SimTime start;
  double rate_cap = std::numeric_limits<double>::infinity();  // over all planes [bytes/s]
  SimTime stop = SimTime::never();                            // cut off then, if it is still sending
};

// From `time` on `flow`, or its remaining bytes, takes the path that `hash` selects.
struct RerouteEvent {
  SimTime time;
  int32_t flow = 0;
  uint64_t hash = 0;
};

struct FlowOptions {
  uint64_t seed = 0;               // of the flows' paths, if hashed
  std::string fidelity = "flow";   // the engine
  double tolerance = 0;            // of the engine, see Network::set_tolerance
  network::PacketOptions packets;  // of the engine, see Network::set_packets
  bool enable_parking = false;     // flows without a route wait for one; else they are a NoRouteError
};

struct FlowRunResult {
  std::vector<int64_t> sent_ps;       // last byte has left
  std::vector<int64_t> delivered_ps;  // sent + alpha; -1 as sent_ps where the flow was cut off
  std::vector<double> bytes_left;     // of flows cut off, else 0
  std::vector<double> link_bytes;     // per engine link
  int64_t num_solves = 0;
  double forwarded_bytes = 0;             // by accelerators that were neither source nor destination, one plane
  std::vector<workload::Report> reports;  // of the controllers
  std::vector<std::string> checks;        // conservation laws that were checked and held
  std::vector<std::string> notes;         // of the engine
};

class FlowRun : public CarrierClient, public ControlTarget {
 public:
  // Throws: ConfigError for accelerators, links, flows or bytes out of range.
  FlowRun(const routing::RouteTable& routes, int32_t num_accelerators, const std::vector<FlowSpec>& flows,
          Controllers controllers, std::vector<RerouteEvent> reroutes, const FlowOptions& options);

  // Throws: DeadlockError if flows are left on links of capacity 0, NoRouteError for a cut pair or, with parking, if
  // flows are left that wait for a route.
  FlowRunResult run();

  int32_t num_parcels() const override { return static_cast<int32_t>(flows_.size()); }
  Parcel& parcel(int32_t flow) override { return flows_[flow]; }
  void on_sent(int32_t flow) override { result_.sent_ps[flow] = queue_.now().ps(); }
  void on_delivered(int32_t flow) override {
    result_.delivered_ps[flow] = queue_.now().ps();
    --num_left_;
  }
  network::RouteId route_of(int32_t flow) override;
  network::RouteId add_route(int32_t flow, const routing::Route& route) override;
  Ends ends_of(int32_t flow) const override { return {flows_[flow].source, flows_[flow].target}; }
  Purpose purpose_of(int32_t) const override { return {}; }
  std::string describe(int32_t flow) const override;
  void on_new_route(int32_t, int32_t) override {}  // a flow's route is asked for when it starts or moves
  void on_new_offers() override {}
  network::NetworkStats stats() override { return carrier_.network().stats(); }
  int32_t simulated_link(int32_t link) const override { return link; }
  // There are no jobs: flows of a failed accelerator stand still.
  std::vector<int32_t> cut_failed(const Faults&) override { return {}; }
  void restart(int32_t, SimTime, int32_t, const std::vector<int32_t>&, const Faults&) override { throw_no_jobs(); }
  void hold(int32_t, int32_t, SimTime) override { throw_no_jobs(); }
  std::vector<int32_t> accelerators_of(int32_t) const override { throw_no_jobs(); }
  int32_t num_jobs() const override { return 0; }
  int32_t num_iterations_done(int32_t) const override { throw_no_jobs(); }

 private:
  struct Flow : Parcel {  // from and to accelerators
    uint64_t hash = 0;    // selects its path, by the seed or the last reroute
  };
  enum class Kind : uint64_t { kStart = 0, kReroute = 1, kStop = 2 };
  [[noreturn]] static void throw_no_jobs();
  void add_flow(const FlowSpec& spec, int32_t num_accelerators, uint64_t seed);
  void check_memory(const std::vector<FlowSpec>& flows) const;
  void on_event(uint64_t payload);
  void schedule(SimTime time, Kind kind, size_t index);
  void stop(int32_t flow);
  void check_all_arrived();

  routing::RouteTable routes_;
  size_t num_links_;         // without those that are added
  routing::Detail detail_;   // of routes, that the engine needs
  std::vector<Flow> flows_;  // a flow's number is its parcel's
  size_t num_left_ = 0;      // of them, that have neither arrived nor been cut off
  Controllers controllers_;
  std::vector<RerouteEvent> reroutes_;
  routing::EndPoints end_points_;
  EventQueue queue_;
  MemberEvent<FlowRun> events_;
  Carrier carrier_;
  ControlHost control_;
  FlowRunResult result_;
};

}  // namespace rostam::runtime
