// FlowNetwork: the flow tier. Rates are max-min fair over weighted links and change only when a flow starts or
// ends, a capacity or a path changes; work per change follows the flows whose rates it touches (rates.cpp).
// Changes of one instant are solved together. Capacity is checked after every solve (1e-9 relative).
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "flow/hop_store.h"
#include "flow/max_min.h"
#include "network/network.h"
#include "sim/few_list.h"

namespace rostam::flow {

class FlowNetwork : public network::Network {
 public:
  // `queue` and `client` must outlive the network.
  FlowNetwork(EventQueue& queue, const network::LinkTable& links, network::NetworkClient& client);

  network::RouteId add_route(const routing::Route& route, uint64_t name) override;
  std::vector<int32_t> links_of(network::RouteId route) const override;
  std::vector<routing::LinkShare> shares_of(network::RouteId route) const override;
  // Forgets a route; its id may be given to another one. REQUIRES: no flow is on it.
  void remove_route(network::RouteId route);
  void set_tolerance(double share) override;
  network::TransferId start(const network::Transfer& transfer) override;
  network::TransferId resume(const network::Transfer& transfer, SimTime started) override;
  void cancel(network::TransferId flow) override;
  void set_route(network::TransferId flow, network::RouteId route) override;
  // The same with another cap on its rate.
  void set_route(network::TransferId flow, network::RouteId route, double rate_cap);
  void set_capacity(int32_t link, double bytes_per_s) override;
  int32_t add_links(const std::vector<network::EngineLink>& links) override;
  void remove_links(const std::vector<int32_t>& links) override;
  double backlog(network::TransferId flow) const override;
  bool is_endless(network::TransferId flow) const override;
  SimTime stands_since(network::TransferId flow) const override;
  double backlog(int32_t src, int32_t dst) const override;
  double bytes_waiting(int32_t link) const override;
  double bytes_beside(int32_t link, double alone_s) const override;
  network::NetworkStats stats() const override;
  int32_t num_links() const override { return static_cast<int32_t>(links_.size()); }

 private:
  static constexpr int32_t kNoLink = -1;

  struct Member {  // one appearance of a flow on a link
    uint32_t flow;
    uint32_t hop;
    double share;
  };
  // What solving looks at of every link of a flow: a cache line.
  struct alignas(64) LinkState {
    double capacity = 0;
    double peak_load = 0;     // what it would carry if every flow on it ran at its peak
    double guard_load = 0;    // what it would carry if every flow on it ran at its guard
    double bound_rate = 0;    // of the flows whose bottleneck it is
    RateSum load;             // what it carries; kept while it is binding
    uint32_t seen = 0;        // epoch_ of the last region it was in
    uint32_t local = 0;       // its index in that region's problem
    bool is_binding = false;  // else it could carry all its flows at their peaks, or at their guards
    bool is_dirty = false;    // it may no longer be the bottleneck of the flows that it was
    bool is_reset = false;    // its capacity has changed
    bool is_removed = false;
  };
  static_assert(sizeof(LinkState) == 64, "one cache line");
  struct alignas(64) Crowd {  // the flows on a link: a cache line while they are few
    FewList<Member, 3> members;
    int64_t busy_ps = 0;  // in which there were any, up to now; less the time of now while there are
  };
  static_assert(sizeof(Crowd) == 64, "one cache line");
  // The same of every flow.
  struct Pace {
    double rate = 0;
    double guard = 0;              // never below the rate; moves seldom, so that links far from full are left alone
    uint32_t seen = 0;             // epoch_ of the last region it was in
    int32_t bottleneck = kNoLink;  // the full link that holds it below its peak
    uint32_t place = 0;            // in that link's `bound`
  };
  struct RouteState {
    Hops links;
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
    SimTime started;
    SimTime finish;      // at the present rate
    SimTime event_time;  // of its valid completion event, never() if it has none; it may fire before `finish`
    network::RouteId route = 0;
    uint32_t version = 0;  // completion events of older versions are stale
    bool is_active = false;
    bool is_attached = false;  // to its route's links
    uint32_t first_place = 0;  // in places_, of its first hop
    uint32_t num_places = 0;   // that it may use there
  };
  class Completions : public EventHandler {
   public:
    explicit Completions(FlowNetwork& owner) : owner_(owner) {}
    void on_event(uint64_t payload) override { owner_.complete(payload); }
    void fetch(uint64_t payload) const override {
      __builtin_prefetch(&owner_.flows_[static_cast<uint32_t>(payload)], 1);
      __builtin_prefetch(&owner_.paces_[static_cast<uint32_t>(payload)], 1);
    }

   private:
    FlowNetwork& owner_;
  };
  class Deliveries : public EventHandler {
   public:
    explicit Deliveries(FlowNetwork& owner) : owner_(owner) {}
    void on_event(uint64_t payload) override { owner_.client_.on_delivered(payload); }
    void fetch(uint64_t payload) const override { owner_.client_.fetch_delivered(payload); }

   private:
    FlowNetwork& owner_;
  };
  class Solves : public EventHandler {
   public:
    explicit Solves(FlowNetwork& owner) : owner_(owner) {}
    void on_event(uint64_t payload) override { owner_.solve_if_due(payload); }

   private:
    FlowNetwork& owner_;
  };

  uint32_t new_flow(const network::Transfer& transfer);
  void fetch_links(uint32_t flow, bool with_flows) const;
  void attach(uint32_t flow);
  void detach(uint32_t flow);
  void check_link(int32_t link) const;
  void change_capacity(int32_t link, double bytes_per_s);
  std::vector<double> link_bytes() const;
  std::vector<double> link_busy_s() const;
  void mark_dirty(int32_t link, SimTime latest);
  void request_solve(SimTime latest);
  void solve_if_due(uint64_t number);
  SimTime latest_effect(double seconds) const;
  double expected_s(uint32_t flow) const;
  void solve();
  bool may_bind(const LinkState& link) const;
  void update_binding(int32_t link);
  bool is_guarded(uint32_t flow) const;
  void set_guard(uint32_t flow, double guard);
  bool raise_guards();
  void lower_guards();
  void rebuild_region();
  bool is_free(uint32_t flow) const;  // no link binds it: it runs at its peak
  double peak_of(const FlowState& flow) const;
  void set_bottleneck(uint32_t flow, int32_t link);
  void clear_region();
  void include_new(uint32_t flow);
  void include_bound(int32_t link);
  void include(uint32_t flow);
  void solve_region();
  bool grow_region();
  void sum_loads();
  double fastest_outside(uint32_t local) const;
  void find_bottleneck(size_t region_flow);
  void include_spoilt(uint32_t local);
  void settle_region();
  void order_region();
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
  std::vector<Crowd> crowds_;                // of links_
  std::vector<FewList<uint32_t, 4>> bound_;  // of links_: the flows whose bottleneck each is
  HopStore hops_;                            // of routes_
  std::vector<RouteState> routes_;
  std::vector<FlowState> flows_;
  std::vector<Pace> paces_;       // of flows_
  std::vector<uint32_t> places_;  // per flow and hop: index in that link's members
  std::vector<uint32_t> free_flows_;
  std::vector<network::RouteId> free_routes_;
  std::vector<double> removed_bytes_;  // by link, that were sent over removed routes; shorter where none
  std::vector<int32_t> dirty_links_;
  std::vector<uint32_t> new_flows_;
  double tolerance_ = 0;
  SimTime solve_time_ = SimTime::never();  // of the next solve, if there is one to come
  uint64_t solve_number_ = 0;              // its event's; others are stale
  uint32_t epoch_ = 0;
  uint64_t num_bindings_ = 0;  // times that a link became binding
  int64_t num_active_ = 0;
  int64_t num_solves_ = 0;

  // The flows that are being solved, and their binding links.
  struct RegionLink {
    int32_t link = 0;
    uint32_t num_members = 0, num_bound = 0;  // flows of the region on it, and those it was the bottleneck of
    RateSum outside;                          // what the other flows on it take
    RateSum load;                             // of all, at the new rates
    double fastest = 0;                       // flow of the region on it
    double bound = 0;                         // what a flow's rate may not be below for it to be its bottleneck
  };
  std::vector<uint32_t> region_flows_;
  std::vector<RegionLink> region_links_;
  std::vector<int32_t> bottlenecks_;
  std::vector<std::pair<uint64_t, uint32_t>> named_;
  MaxMinProblem problem_;
};

}  // namespace rostam::flow
