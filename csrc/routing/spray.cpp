// spray routing: at each hop an equal share on every outgoing link that lies on a minimal path (MODEL F18).
// Walks the minimal paths level by level; where a fabric's bundles collapse, one far end stands for all of a
// bundle's, so that a route on a tree costs a few steps however many spines there are.
#include "routing/spray.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "routing/minimal_paths.h"
#include "sim/interrupt.h"

namespace rostam::routing {

namespace {

// Sums of n-ths that should make 1 differ from it by rounding alone.
constexpr double kRounding = 1e-12;

// Sprays the bytes of many sources towards one destination at once: places in order of falling distance hand on what
// they hold in equal parts.
class SprayLoads {
 public:
  SprayLoads(MinimalPaths& paths, const EngineLinks& links, std::vector<double>& loads)
      : paths_(paths), links_(links), loads_(loads), held_(static_cast<size_t>(paths.num_places()), 0.0) {}

  void aim(int32_t dst) {
    poll_interrupt();
    dst_ = dst;
    paths_.aim(dst);
  }

  void aim_at_vertex(int32_t vertex) {
    poll_interrupt();
    dst_ = vertex;
    paths_.aim_at_vertex(vertex);
  }

  // From any vertex that reaches the destination.
  void inject_at_vertex(int32_t vertex, double num_bytes) {
    if (vertex != dst_ && num_bytes != 0) hold(paths_.start(vertex), num_bytes);
  }

  void inject(int32_t src, double num_bytes) {
    if (src == dst_ || num_bytes == 0) return;
    paths_.check_pair(src);
    hold(paths_.start(src), num_bytes);
  }

  void deliver() {
    for (size_t far = levels_.size(); far-- > 1;) {
      for (const int32_t place : levels_[far]) hand_on(place);
      levels_[far].clear();
    }
    if (!levels_.empty()) levels_[0].clear();
    held_[static_cast<size_t>(paths_.end())] = 0;
  }

 private:
  void hold(int32_t place, double num_bytes) {
    double& held = held_[static_cast<size_t>(place)];
    if (held == 0) {
      const size_t far = static_cast<size_t>(paths_.distance(place));
      if (levels_.size() <= far) levels_.resize(far + 1);
      levels_[far].push_back(place);
    }
    held += num_bytes;
  }

  void hand_on(int32_t place) {
    const fabric::HopSpan hops = paths_.next_hops(place, hops_);
    ROSTAM_CHECK(hops.size() > 0, "vertex " << paths_.vertex_of(place) << " has no hop towards accelerator " << dst_);
    const double part = held_[static_cast<size_t>(place)] / static_cast<double>(hops.size());
    held_[static_cast<size_t>(place)] = 0;
    for (const fabric::Hop& hop : hops) {
      loads_[static_cast<size_t>(links_.of_link[static_cast<size_t>(hop.link)])] += part;
      hold(hop.neighbour, part);
    }
  }

  MinimalPaths& paths_;
  const EngineLinks& links_;
  std::vector<double>& loads_;
  int32_t dst_ = -1;
  std::vector<double> held_;
  std::vector<std::vector<int32_t>> levels_;  // places that hold bytes, by distance
  std::vector<fabric::Hop> hops_;
};

// What bytes meet on their ways to one destination: places in order of rising distance, each from those next to it.
class SprayCosts {
 public:
  SprayCosts(MinimalPaths& paths, const EngineLinks& links, const std::vector<double>& prices)
      : paths_(paths), links_(links), prices_(prices), cost_of_(static_cast<size_t>(paths.num_places()), kUnknown) {}

  // REQUIRES: the paths aim at the destination.
  void find(const std::vector<int32_t>& from, std::vector<double>& costs) {
    poll_interrupt();
    cost_of_[static_cast<size_t>(paths_.end())] = 0;
    for (const int32_t vertex : from) {
      if (reaches(vertex)) visit(paths_.start(vertex));
    }
    for (size_t far = levels_.size(); far-- > 1;) {
      for (Place& one : levels_[far]) {
        one.first_hop = hops_.size();
        for (const fabric::Hop& hop : paths_.next_hops(one.place, found_)) hops_.push_back(hop);
        one.end_hop = hops_.size();
        for (size_t h = one.first_hop; h < one.end_hop; ++h) visit(hops_[h].neighbour);
      }
    }
    for (const std::vector<Place>& level : levels_) {
      for (const Place& one : level) cost_of_[static_cast<size_t>(one.place)] = mean_of(one);
    }
    costs.assign(static_cast<size_t>(paths_.fabric().num_vertices()), 0.0);
    for (const int32_t vertex : from) {
      if (reaches(vertex)) costs[static_cast<size_t>(vertex)] = cost_of_[static_cast<size_t>(paths_.start(vertex))];
    }
  }

 private:
  static constexpr double kUnknown = -1, kSeen = -2;
  struct Place {
    int32_t place = 0;
    size_t first_hop = 0, end_hop = 0;
  };

  bool reaches(int32_t vertex) const {
    return vertex != paths_.vertex_of(paths_.end()) && paths_.distance(paths_.start(vertex)) < fabric::kUnreachable;
  }

  void visit(int32_t place) {
    double& cost = cost_of_[static_cast<size_t>(place)];
    if (cost != kUnknown) return;
    cost = kSeen;
    const auto far = static_cast<size_t>(paths_.distance(place));
    if (levels_.size() <= far) levels_.resize(far + 1);
    levels_[far].push_back({place, 0, 0});
  }

  double mean_of(const Place& one) const {
    double sum = 0;
    for (size_t h = one.first_hop; h < one.end_hop; ++h) {
      const int32_t link = links_.of_link[static_cast<size_t>(hops_[h].link)];
      sum += prices_[static_cast<size_t>(link)] + cost_of_[static_cast<size_t>(hops_[h].neighbour)];
    }
    return sum / static_cast<double>(one.end_hop - one.first_hop);
  }

  MinimalPaths& paths_;
  const EngineLinks& links_;
  const std::vector<double>& prices_;
  std::vector<double> cost_of_;             // by place
  std::vector<std::vector<Place>> levels_;  // by distance
  std::vector<fabric::Hop> hops_, found_;
};

class SprayPolicy : public SprayPaths {
 public:
  SprayPolicy(std::shared_ptr<const fabric::Fabric> fabric, const PolicyOptions& options,
              std::shared_ptr<const fabric::PathRule> rule, std::string note)
      : note_(std::move(note)),
        links_(*fabric, options.enable_bundling),
        overhead_(options.message_overhead),
        has_rule_(rule != nullptr || fabric->path_rule() != nullptr),
        is_bundled_(options.enable_bundling),
        can_collapse_(is_bundled_ && fabric->bundles_collapse()),
        position_(links_.members.size(), -1),
        paths_(std::move(fabric), std::move(rule)) {
    const auto num_places = static_cast<size_t>(paths_.num_places());
    weight_.assign(num_places, 0.0);
    latency_.resize(num_places);
  }

  Route route(int32_t src, int32_t dst, const RouteQuery& query) const override {
    ROSTAM_CHECK(src != dst, "route from accelerator " << src << " to itself");
    ROSTAM_CHECK(!query.wants_steps || !is_bundled_, "steps are asked for of bundled links");
    paths_.aim(dst);
    paths_.check_pair(src);
    Route route = walk(src, dst, query.wants_steps);
    if (query.for_packets) number_channels(route.steps);
    return route;
  }

  Route between(int32_t from, int32_t to, bool wants_steps) const override {
    aim_at(to);
    if (paths_.distance(paths_.start(from)) >= fabric::kUnreachable) {
      ROSTAM_THROW(NoRouteError,
                   "no path is left from vertex " << from << " to vertex " << to << " of fabric " << fabric().name());
    }
    return walk(from, to, wants_steps);
  }

  void number_channels(Steps& steps) const override { paths_.number_channels(steps); }

  bool reaches(int32_t from, int32_t to, bool by_detours) const override {
    if (from == to) return true;
    aim_at(to);
    if (!by_detours && paths_.is_detour(from)) return false;
    return paths_.distance(paths_.start(from)) < fabric::kUnreachable;
  }

  void add_loads_to(int32_t to, const std::vector<double>& held, std::vector<double>& loads) const override {
    SprayLoads sprayed(paths_, links_, loads);
    if (to < fabric().num_accelerators())
      sprayed.aim(to);
    else
      sprayed.aim_at_vertex(to);
    for (size_t v = 0; v < held.size(); ++v) sprayed.inject_at_vertex(static_cast<int32_t>(v), held[v]);
    sprayed.deliver();
  }

  void find_costs_to(int32_t to, const std::vector<double>& prices, const std::vector<int32_t>& from,
                     std::vector<double>& costs) const override {
    aim_at(to);
    SprayCosts(paths_, links_, prices).find(from, costs);
  }

  const fabric::Fabric& fabric() const override { return paths_.fabric(); }
  bool is_hash_free() const override { return true; }
  bool follows_symmetries() const override { return !has_rule_; }
  const EngineLinks& links() const override { return links_; }
  int32_t num_virtual_channels() const override { return paths_.num_virtual_channels(); }
  std::string note() const override { return note_; }

  void add_loads(const Flows& flows, std::vector<double>& loads) const override {
    std::vector<size_t> order(flows.src.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return flows.dst[a] < flows.dst[b]; });
    SprayLoads sprayed(paths_, links_, loads);
    for (size_t i = 0; i < order.size(); ++i) {
      const size_t flow = order[i];
      if (i == 0 || flows.dst[flow] != flows.dst[order[i - 1]]) {
        if (i > 0) sprayed.deliver();
        sprayed.aim(flows.dst[flow]);
      }
      sprayed.inject(flows.src[flow], flows.num_bytes[flow]);
    }
    if (!order.empty()) sprayed.deliver();
  }

  void add_uniform_loads(const std::vector<int32_t>& members, double num_bytes,
                         std::vector<double>& loads) const override {
    SprayLoads sprayed(paths_, links_, loads);
    for (const int32_t dst : members) {
      sprayed.aim(dst);
      for (const int32_t src : members) sprayed.inject(src, num_bytes);
      sprayed.deliver();
    }
  }

 private:
  void aim_at(int32_t to) const {
    if (to < fabric().num_accelerators())
      paths_.aim(to);
    else
      paths_.aim_at_vertex(to);
  }

  // REQUIRES: paths_ aim at dst, which is not out of reach.
  Route walk(int32_t src, int32_t dst, bool wants_steps) const {
    Route route;
    route.src = src;
    route.dst = dst;
    const int32_t start = paths_.start(src), end = paths_.end();
    route.links.reserve(static_cast<size_t>(paths_.distance(start)));  // one a level at least
    level_.assign(1, start);
    weight_[static_cast<size_t>(start)] = 1;
    latency_[static_cast<size_t>(start)] = overhead_;
    if (wants_steps) {
      node_.resize(weight_.size());
      add_node(start, route.steps);
    }
    while (level_.front() != end) {
      next_level_.clear();
      for (const int32_t place : level_) leave(place, wants_steps, route);
      level_.swap(next_level_);
    }
    weight_[static_cast<size_t>(end)] = 0;
    route.latency = latency_[static_cast<size_t>(end)];
    for (LinkShare& part : route.links) {
      position_[static_cast<size_t>(part.link)] = -1;
      if (std::abs(part.share - 1) < kRounding) part.share = 1;
    }
    return route;
  }

  // Moves the weight that reached `place` over its minimal links into the next level.
  void leave(int32_t place, bool wants_steps, Route& route) const {
    fabric::HopSpan hops = paths_.next_hops(place, hops_);
    ROSTAM_CHECK(hops.size() > 0,
                 "vertex " << paths_.vertex_of(place) << " has no hop towards accelerator " << route.dst);
    if (can_collapse_ && is_one_bundle(hops)) hops.last = hops.first + 1;
    const fabric::Fabric& fabric = paths_.fabric();
    const double share = weight_[static_cast<size_t>(place)] / static_cast<double>(hops.size());
    const SimTime left_at = latency_[static_cast<size_t>(place)];
    weight_[static_cast<size_t>(place)] = 0;
    if (wants_steps) route.steps.nodes[node_[static_cast<size_t>(place)]].first_hop = next_hop(route.steps);
    for (const fabric::Hop& hop : hops) {
      const size_t link = static_cast<size_t>(hop.link);
      add(links_.of_link[link], share, route);
      SimTime arrival = left_at + fabric.links()[link].latency;
      if (hop.neighbour != paths_.end()) arrival += fabric.forward_latency();
      double& weight = weight_[static_cast<size_t>(hop.neighbour)];
      SimTime& latest = latency_[static_cast<size_t>(hop.neighbour)];
      if (weight == 0) {
        next_level_.push_back(hop.neighbour);
        if (wants_steps) add_node(hop.neighbour, route.steps);
      }
      latest = weight == 0 ? arrival : std::max(latest, arrival);
      weight += share;
      if (wants_steps) {
        const int32_t channel = paths_.phase_behind(place, hop.link);
        route.steps.hops.push_back({links_.of_link[link], node_[static_cast<size_t>(hop.neighbour)], channel});
      }
    }
    if (wants_steps) route.steps.nodes[node_[static_cast<size_t>(place)]].end_hop = next_hop(route.steps);
  }

  static uint32_t next_hop(const Steps& steps) { return static_cast<uint32_t>(steps.hops.size()); }

  void add_node(int32_t place, Steps& steps) const {
    node_[static_cast<size_t>(place)] = static_cast<uint32_t>(steps.nodes.size());
    steps.nodes.push_back({paths_.vertex_of(place), paths_.phase_of(place), 0, 0});
  }

  bool is_one_bundle(const fabric::HopSpan& hops) const {
    const int32_t first = links_.of_link[static_cast<size_t>(hops.first->link)];
    for (const fabric::Hop& hop : hops) {
      if (links_.of_link[static_cast<size_t>(hop.link)] != first) return false;
    }
    return true;
  }

  void add(int32_t engine_link, double share, Route& route) const {
    int32_t& position = position_[static_cast<size_t>(engine_link)];
    if (position < 0) {
      position = static_cast<int32_t>(route.links.size());
      route.links.push_back({engine_link, 0.0});
    }
    route.links[static_cast<size_t>(position)].share += share;
  }

  std::string note_;
  EngineLinks links_;
  SimTime overhead_;
  bool has_rule_;  // which may tell links apart that are otherwise equal
  bool is_bundled_;
  bool can_collapse_;
  // Working memory of route(), all zero (or -1) between calls.
  mutable std::vector<double> weight_;     // share that reached a place of the level in work
  mutable std::vector<SimTime> latency_;   // of the slowest path there
  mutable std::vector<int32_t> position_;  // engine link -> place in the route
  mutable std::vector<uint32_t> node_;     // of the steps, where they are asked for
  mutable std::vector<int32_t> level_;
  mutable std::vector<int32_t> next_level_;
  mutable std::vector<fabric::Hop> hops_;
  mutable MinimalPaths paths_;
};

}  // namespace

std::unique_ptr<RoutePolicy> make_spray_policy(std::shared_ptr<const fabric::Fabric> fabric,
                                               const PolicyOptions& options) {
  return std::make_unique<SprayPolicy>(std::move(fabric), options, nullptr, "");
}

std::unique_ptr<SprayPaths> make_spray_paths(std::shared_ptr<const fabric::Fabric> fabric, SimTime message_overhead,
                                             std::shared_ptr<const fabric::PathRule> rule, std::string note) {
  return std::make_unique<SprayPolicy>(std::move(fabric), PolicyOptions{message_overhead, false}, std::move(rule),
                                       std::move(note));
}

}  // namespace rostam::routing
