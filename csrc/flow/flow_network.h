// FlowNetwork: the flow tier. Rates are max-min fair over weighted links and change only when a flow starts or
// ends, a capacity or a path changes; work per change follows the flows whose rates it touches (rates.cpp).
// Changes of one instant are solved together. Capacity is checked after every solve (1e-9 relative).
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "flow/max_min.h"
#include "network/network.h"

namespace rostam::flow {

class FlowNetwork : public network::Network {
 public:
  // `queue` and `client` must outlive the network.
  FlowNetwork(EventQueue& queue, const network::LinkTable& links, network::NetworkClient& client);

  network::RouteId add_route(const routing::Route& route, uint64_t name) override;
  network::TransferId start(const network::Transfer& transfer) override;
  network::TransferId resume(const network::Transfer& transfer, SimTime started) override;
  void cancel(network::TransferId flow) override;
  void set_route(network::TransferId flow, network::RouteId route) override;
  void set_capacity(int32_t link, double bytes_per_s) override;
  int32_t add_links(const std::vector<network::EngineLink>& links) override;
  void remove_links(const std::vector<int32_t>& links) override;
  double backlog(network::TransferId flow) const override;
  bool is_endless(network::TransferId flow) const override;
  double backlog(int32_t src, int32_t dst) const override;
  network::NetworkStats stats() const override;
  int32_t num_links() const override { return static_cast<int32_t>(links_.size()); }

 private:
  static constexpr int32_t kNoLink = -1;

  struct Member {  // one appearance of a flow on a link
    uint32_t flow;
    uint32_t hop;
    double share;
  };
  struct LinkState {
    double capacity = 0;
    double peak_load = 0;  // what it would carry if every flow on it ran at its peak
    uint32_t seen = 0;     // link_epoch_ of the last region it was in
    int32_t local = 0;     // its index in that region's problem
    std::vector<Member> members;
    uint32_t summed = 0;      // epoch_ for which the next two hold
    double outside_load = 0;  // of its flows outside the region, and the fastest of them
    double outside_fastest = 0;
    uint32_t included = 0;  // epoch_ in which all its flows joined the region
    SimTime busy_since;
    int64_t busy_ps = 0;
    bool is_dirty = false;
    bool is_removed = false;
  };
  // What solving looks at of every flow on every link of a region: kept together, so that it stays in the cache.
  struct Pace {
    double rate = 0;
    uint32_t seen = 0;             // epoch_ of the last region it was in
    uint32_t noticed = 0;          // epoch_ of the last region that it shared a link with
    int32_t bottleneck = kNoLink;  // the full link that holds it below its peak
  };
  struct RouteState {
    std::vector<routing::LinkShare> links;
    SimTime latency;
    uint64_t name = 0;
    int32_t src = -1, dst = -1;
    double bytes = 0;  // sent over this route so far
  };
  struct FlowState {
    double bytes = 0;      // size on the current route: sent = bytes - remaining
    double remaining = 0;  // as of `updated`
    double rate_cap = 0;
    SimTime extra_latency;
    double peak = 0;  // the least of its cap and what each link alone would give it
    uint64_t token = 0;
    SimTime updated;
    SimTime finish;      // at the present rate
    SimTime event_time;  // of its valid completion event, never() if it has none; it may fire before `finish`
    network::RouteId route = 0;
    uint32_t version = 0;  // completion events of older versions are stale
    bool is_active = false;
    bool is_attached = false;      // to its route's links
    std::vector<uint32_t> places;  // per hop: index in that link's members
  };
  class Completions : public EventHandler {
   public:
    explicit Completions(FlowNetwork& owner) : owner_(owner) {}
    void on_event(uint64_t payload) override { owner_.complete(payload); }

   private:
    FlowNetwork& owner_;
  };
  class Deliveries : public EventHandler {
   public:
    explicit Deliveries(FlowNetwork& owner) : owner_(owner) {}
    void on_event(uint64_t payload) override { owner_.client_.on_delivered(payload); }

   private:
    FlowNetwork& owner_;
  };
  class Solves : public EventHandler {
   public:
    explicit Solves(FlowNetwork& owner) : owner_(owner) {}
    void on_event(uint64_t) override { owner_.solve(); }

   private:
    FlowNetwork& owner_;
  };

  uint32_t new_flow(const network::Transfer& transfer);
  void attach(uint32_t flow);
  void detach(uint32_t flow);
  void check_link(int32_t link) const;
  void change_capacity(int32_t link, double bytes_per_s);
  std::vector<double> link_bytes() const;
  std::vector<double> link_busy_s() const;
  void mark_dirty(int32_t link);
  void request_solve();
  void solve();
  // A link that could carry all its flows at their peaks binds none of them.
  bool is_binding(const LinkState& link) const;
  bool is_free(uint32_t flow) const;  // no link binds it: it runs at its peak
  double peak_of(const FlowState& flow) const;
  void include_members(int32_t link);
  void sum_outside(LinkState& link);
  bool include(uint32_t flow);
  void solve_region();
  void order_region();
  bool grow_region();
  void find_bottleneck(size_t region_flow);
  void bound_links();
  void set_rate(uint32_t flow, double rate);
  double remaining_of(uint32_t flow) const;
  void settle(uint32_t flow);
  void expect_completion(uint32_t flow);
  void complete(uint64_t payload);
  void finish(uint32_t flow);

  EventQueue& queue_;
  network::NetworkClient& client_;
  Completions completions_;
  Deliveries deliveries_;
  Solves solves_;
  std::vector<LinkState> links_;
  std::vector<RouteState> routes_;
  std::vector<FlowState> flows_;
  std::vector<Pace> paces_;  // of flows_
  std::vector<uint32_t> free_flows_;
  std::vector<int32_t> dirty_links_;
  std::vector<uint32_t> new_flows_;
  bool is_solve_pending_ = false;
  uint32_t epoch_ = 0;
  int64_t num_active_ = 0;
  int64_t num_solves_ = 0;

  // The flows that are being solved, and their binding links: load and fastest flow of each at the new rates, and what
  // a flow's rate may not be below for the link to be its bottleneck.
  uint32_t link_epoch_ = 0;
  std::vector<uint32_t> region_flows_;
  std::vector<std::pair<uint64_t, uint32_t>> named_;
  std::vector<int32_t> region_links_;
  std::vector<int32_t> bottlenecks_;
  std::vector<double> load_, fastest_, bound_;
  std::vector<uint32_t> neighbours_;  // outside, on links of the region, held by a bottleneck
  MaxMinProblem problem_;
};

}  // namespace rostam::flow
