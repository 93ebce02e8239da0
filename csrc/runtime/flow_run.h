// FlowRun: given flows over a system's links, without devices or dependencies; capacities and paths may change.
// Example: FlowRun(routes, num_accelerators, flows, {}, {}, 0, "flow").run() gives when every flow was sent and
// delivered.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "folding/folding.h"
#include "network/registry.h"
#include "routing/end_points.h"

namespace rostam::runtime {

using folding::LinkEvent;

struct FlowSpec {
  int32_t src = 0;
  int32_t dst = 0;
  int64_t bytes = 0;
  SimTime start;
  double rate_cap = std::numeric_limits<double>::infinity();  // [bytes/s]
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

class FlowRun : public network::NetworkClient {
 public:
  // Throws: ConfigError for accelerators, links, flows or bytes out of range, NoRouteError for a cut pair.
  FlowRun(std::shared_ptr<routing::RouteTable> routes, int32_t num_accelerators, std::vector<FlowSpec> flows,
          std::vector<LinkEvent> link_events, std::vector<RerouteEvent> reroutes, uint64_t seed,
          const std::string& fidelity);

  // Throws: DeadlockError if flows are left on links of capacity 0.
  FlowRunResult run();

  void on_sent(uint64_t token) override;
  void on_delivered(uint64_t token) override;

 private:
  enum class Kind : uint64_t { kStart = 0, kLink = 1, kReroute = 2, kStop = 3 };
  class Events : public EventHandler {
   public:
    explicit Events(FlowRun& owner) : owner_(owner) {}
    void on_event(uint64_t payload) override { owner_.on_event(payload); }

   private:
    FlowRun& owner_;
  };
  void on_event(uint64_t payload);
  void schedule(SimTime time, Kind kind, size_t index);
  network::RouteId add_route(int32_t flow, uint64_t hash);
  void check_all_arrived() const;
  void check_accelerators();

  std::shared_ptr<routing::RouteTable> routes_;
  std::vector<FlowSpec> flows_;
  std::vector<LinkEvent> link_events_;
  std::vector<RerouteEvent> reroutes_;
  std::vector<uint64_t> hashes_;  // per flow: selects its path, by the seed or the last reroute
  routing::EndPoints end_points_;
  EventQueue queue_;
  Events events_;
  std::unique_ptr<network::Network> network_;
  std::vector<network::TransferId> ids_;
  std::vector<uint8_t> is_active_;
  std::vector<uint8_t> is_cut_;
  FlowRunResult result_;
};

}  // namespace rostam::runtime
