// turns_adaptive routing: packets go by load at every hop, over walks on which they cannot block each other for good.
// Where the fabric states an escape rule (a torus, a Dragonfly): all minimal hops, on a virtual channel of their own,
// optional ones; required is the next hop of the escape rule's walk, which begins anew wherever a packet has come over
// a minimal hop and goes on from its last hop otherwise. A packet that an escape hop takes off the minimal paths, as
// only failures make it, stays on the escape walk. Elsewhere: the walks of routing turns, all of them required.
// Messages of engines that do not walk packets have the equal shares of spray there, and of turns here.
// Source: Duato, IEEE TPDS 1996 (dependencies.h); HammingMesh, section IV-C, for the walks that its rule allows.
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "fabric/up_down.h"
#include "routing/minimal_paths.h"
#include "routing/registry.h"

namespace rostam::routing {

namespace {

// A routing whose packets go by load. Links of its own, shares and loads are another's.
class ByLoad : public RoutePolicy {
 public:
  explicit ByLoad(std::unique_ptr<RoutePolicy> base) : base_(std::move(base)) {}

  Route route(int32_t src, int32_t dst, const RouteQuery& query) const override {
    Route route = base_->route(src, dst, query);
    route.is_by_load = true;
    return route;
  }
  bool is_hash_free() const override { return true; }
  const fabric::Fabric& fabric() const override { return base_->fabric(); }
  const EngineLinks& links() const override { return base_->links(); }
  int32_t num_virtual_channels() const override { return base_->num_virtual_channels(); }
  std::string note() const override { return base_->note(); }
  void add_loads(const Flows& flows, std::vector<double>& loads) const override { base_->add_loads(flows, loads); }
  void add_uniform_loads(const std::vector<int32_t>& members, double num_bytes,
                         std::vector<double>& loads) const override {
    base_->add_uniform_loads(members, num_bytes, loads);
  }

 protected:
  const RoutePolicy& base() const { return *base_; }

 private:
  std::unique_ptr<RoutePolicy> base_;
};

// The steps of one pair: minimal hops, and at every place those of an escape walk.
class EscapeWalks {
 public:
  // REQUIRES: both aim at the destination.
  EscapeWalks(const MinimalPaths& minimal, const MinimalPaths& escape, const std::vector<int32_t>& engine_link)
      : minimal_(minimal), escape_(escape), engine_link_(engine_link) {}

  Steps find(int32_t src) {
    const uint32_t start = enter({src, minimal_.start(src), kNone});
    for (size_t k = start; k < states_.size(); ++k) leave(static_cast<uint32_t>(k));
    return in_order();
  }

 private:
  static constexpr int32_t kNone = -1;
  static constexpr int32_t kOnMinimal = 1 << 29;  // above all distances of escape walks

  // Where a packet is: its places among the minimal paths, kNone off them, and on an escape walk, kNone before one.
  struct Place {
    int32_t vertex, minimal, escape;
    bool operator<(const Place& other) const {
      return std::tie(vertex, minimal, escape) < std::tie(other.vertex, other.minimal, other.escape);
    }
  };
  struct Hop {
    int32_t link;
    uint32_t state;
    int32_t channel;
  };
  struct State {
    Place place;
    int32_t order;  // hops lead to lower ones: minimal hops shorten minimal paths, escape hops both or their own walks
    std::vector<Hop> hops;
    uint32_t num_optional = 0;
  };

  bool is_end(int32_t vertex) const { return vertex == minimal_.vertex_of(minimal_.end()); }

  uint32_t enter(Place place) {
    if (is_end(place.vertex)) place.minimal = place.escape = kNone;
    const auto [known, is_new] = state_of_.try_emplace(place, static_cast<uint32_t>(states_.size()));
    if (is_new) states_.push_back({place, order_of(place), {}, 0});
    return known->second;
  }

  int32_t order_of(const Place& place) const {
    if (is_end(place.vertex)) return 0;
    return place.minimal == kNone ? escape_.distance(place.escape) : kOnMinimal + minimal_.distance(place.minimal);
  }

  // Escape walks lead on from there.
  bool is_safe(int32_t vertex) const {
    return is_end(vertex) || escape_.distance(escape_.start(vertex)) < fabric::kUnreachable;
  }

  void leave(uint32_t from) {
    const Place place = states_[from].place;
    if (is_end(place.vertex)) return;
    std::vector<Hop> hops;
    const fabric::Fabric& fabric = minimal_.fabric();
    fabric::HopSpan shortest;
    if (place.minimal != kNone) shortest = minimal_.next_hops(place.minimal, shortest_);
    for (const fabric::Hop& hop : shortest) {
      const int32_t vertex = minimal_.vertex_of(hop.neighbour);
      if (!fabric.can_forward(vertex) || !is_safe(vertex)) continue;  // whoever is at the end waits for nothing
      hops.push_back({hop.link, enter({vertex, hop.neighbour, kNone}), 0});
    }
    const auto num_optional = static_cast<uint32_t>(hops.size());
    const int32_t walk = place.escape != kNone ? place.escape : escape_.start(place.vertex);
    for (const fabric::Hop& hop : escape_.next_hops(walk, walks_)) {
      const auto same = std::find_if(shortest.begin(), shortest.end(),
                                     [&hop](const fabric::Hop& other) { return other.link == hop.link; });
      const int32_t on_minimal = same == shortest.end() ? kNone : same->neighbour;
      const uint32_t state = enter({escape_.vertex_of(hop.neighbour), on_minimal, hop.neighbour});
      hops.push_back({hop.link, state, 1 + escape_.phase_behind(walk, hop.link)});
    }
    states_[from].hops = std::move(hops);
    states_[from].num_optional = num_optional;
  }

  Steps in_order() const {
    std::vector<uint32_t> order(states_.size()), node(states_.size());
    for (uint32_t k = 0; k < order.size(); ++k) order[k] = k;
    std::stable_sort(order.begin(), order.end(),
                     [this](uint32_t a, uint32_t b) { return states_[a].order > states_[b].order; });
    for (uint32_t k = 0; k < order.size(); ++k) node[order[k]] = k;
    Steps steps;
    for (const uint32_t id : order) {
      const State& state = states_[id];
      const auto first = static_cast<uint32_t>(steps.hops.size());
      for (const Hop& hop : state.hops) {
        steps.hops.push_back({engine_link_[static_cast<size_t>(hop.link)], node[hop.state], hop.channel});
      }
      const int32_t phase = state.place.escape == kNone ? 0 : 1 + escape_.phase_of(state.place.escape);
      steps.nodes.push_back(
          {state.place.vertex, phase, first, static_cast<uint32_t>(steps.hops.size()), state.num_optional});
    }
    return steps;
  }

  const MinimalPaths& minimal_;
  const MinimalPaths& escape_;
  const std::vector<int32_t>& engine_link_;
  std::vector<State> states_;
  std::map<Place, uint32_t> state_of_;
  std::vector<fabric::Hop> shortest_, walks_;
};

class MinimalWithEscape : public ByLoad {
 public:
  MinimalWithEscape(const std::shared_ptr<const fabric::Fabric>& fabric, std::shared_ptr<const fabric::PathRule> rule,
                    const PolicyOptions& options)
      : ByLoad(make_spray_policy(fabric, {options.message_overhead, false})),
        minimal_(fabric),
        escape_(fabric, std::move(rule)) {}

  Route route(int32_t src, int32_t dst, const RouteQuery& query) const override {
    Route route = base().route(src, dst, {});
    route.is_by_load = true;
    if (!query.wants_steps) return route;
    minimal_.aim(dst);
    escape_.aim(dst);
    escape_.check_pair(src);
    route.steps = EscapeWalks(minimal_, escape_, links().of_link).find(src);
    if (query.for_packets) number_channels(route.steps);
    return route;
  }

  // One of the minimal hops, and those of the escape walks.
  int32_t num_virtual_channels() const override { return 1 + escape_.num_virtual_channels(); }

 private:
  // Links are numbered as the fabric's, as nothing is bundled.
  void number_channels(Steps& steps) const {
    for (Steps::Hop& hop : steps.hops) {
      if (hop.channel > 0) hop.channel = 1 + escape_.number_of(hop.link, hop.channel - 1);
    }
  }

  mutable MinimalPaths minimal_, escape_;
};

}  // namespace

std::unique_ptr<RoutePolicy> make_turns_adaptive_policy(std::shared_ptr<const fabric::Fabric> fabric,
                                                        const PolicyOptions& options) {
  std::shared_ptr<const fabric::PathRule> rule = fabric->escape_rule();
  if (rule == nullptr) return std::make_unique<ByLoad>(make_turns_policy(std::move(fabric), options));
  const fabric::Failures& failed = fabric->failures();
  if (!failed.switches.empty() || !failed.cables.empty() || !failed.accelerators.empty()) {
    rule = fabric::make_rule_with_detours(std::move(rule), fabric::search_up_down(*fabric));
  }
  return std::make_unique<MinimalWithEscape>(fabric, std::move(rule), options);
}

}  // namespace rostam::routing
