// spray routing: at each hop an equal share on every outgoing link that lies on a minimal path (MODEL F18).
// Walks the minimal paths level by level; where a fabric's bundles collapse, one far end stands for all of a
// bundle's, so that a route on a tree costs a few steps however many spines there are.
#include <algorithm>
#include <cmath>
#include <utility>

#include "routing/engine_links.h"
#include "routing/minimal_paths.h"
#include "routing/registry.h"

namespace rostam::routing {

namespace {

// Sums of n-ths that should make 1 differ from it by rounding alone.
constexpr double kRounding = 1e-12;

class SprayRouter : public Router {
 public:
  SprayRouter(std::shared_ptr<const fabric::Fabric> fabric, const RouterOptions& options)
      : links_(*fabric, options.enable_bundling),
        overhead_(options.message_overhead),
        can_collapse_(options.enable_bundling && fabric->bundles_collapse()),
        weight_(static_cast<size_t>(fabric->num_vertices()), 0.0),
        latency_(static_cast<size_t>(fabric->num_vertices())),
        position_(links_.members.size(), -1),
        paths_(std::move(fabric)) {}

  Route route(int32_t src, int32_t dst, uint64_t /*message_hash*/) const override {
    ROSTAM_CHECK(src != dst, "route from accelerator " << src << " to itself");
    paths_.aim(dst);
    paths_.check_pair(src);
    Route route;
    route.src = src;
    route.dst = dst;
    level_.assign(1, src);
    weight_[static_cast<size_t>(src)] = 1;
    latency_[static_cast<size_t>(src)] = overhead_;
    while (level_.front() != dst) {
      next_level_.clear();
      for (const int32_t vertex : level_) leave(vertex, dst, route);
      level_.swap(next_level_);
    }
    weight_[static_cast<size_t>(dst)] = 0;
    route.latency = latency_[static_cast<size_t>(dst)];
    for (LinkShare& part : route.links) {
      position_[static_cast<size_t>(part.link)] = -1;
      if (std::abs(part.share - 1) < kRounding) part.share = 1;
    }
    return route;
  }

  const fabric::Fabric& fabric() const override { return paths_.fabric(); }
  bool is_hash_free() const override { return true; }
  const std::vector<double>& capacities() const override { return links_.capacities; }
  const std::vector<std::vector<int32_t>>& members() const override { return links_.members; }

 private:
  // Moves the weight that reached `vertex` over its minimal links into the next level.
  void leave(int32_t vertex, int32_t dst, Route& route) const {
    hops_.clear();
    paths_.append_next_hops(vertex, hops_);
    ROSTAM_CHECK(!hops_.empty(), "vertex " << vertex << " has no hop towards accelerator " << dst);
    if (can_collapse_ && is_one_bundle()) hops_.resize(1);
    const fabric::Fabric& fabric = paths_.fabric();
    const double share = weight_[static_cast<size_t>(vertex)] / static_cast<double>(hops_.size());
    const SimTime left_at = latency_[static_cast<size_t>(vertex)];
    weight_[static_cast<size_t>(vertex)] = 0;
    for (const fabric::Hop& hop : hops_) {
      const size_t link = static_cast<size_t>(hop.link);
      add(links_.of_link[link], share, route);
      SimTime arrival = left_at + fabric.links()[link].latency;
      if (hop.neighbour != dst) arrival += fabric.forward_latency();
      double& weight = weight_[static_cast<size_t>(hop.neighbour)];
      SimTime& latest = latency_[static_cast<size_t>(hop.neighbour)];
      if (weight == 0) next_level_.push_back(hop.neighbour);
      latest = weight == 0 ? arrival : std::max(latest, arrival);
      weight += share;
    }
  }

  bool is_one_bundle() const {
    const int32_t first = links_.of_link[static_cast<size_t>(hops_.front().link)];
    for (const fabric::Hop& hop : hops_) {
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

  EngineLinks links_;
  SimTime overhead_;
  bool can_collapse_;
  // Working memory of route(), all zero (or -1) between calls.
  mutable std::vector<double> weight_;     // share that reached a vertex of the level in work
  mutable std::vector<SimTime> latency_;   // of the slowest path there
  mutable std::vector<int32_t> position_;  // engine link -> place in the route
  mutable std::vector<int32_t> level_;
  mutable std::vector<int32_t> next_level_;
  mutable std::vector<fabric::Hop> hops_;
  mutable MinimalPaths paths_;
};

}  // namespace

std::unique_ptr<Router> make_spray_router(std::shared_ptr<const fabric::Fabric> fabric, const RouterOptions& options) {
  return std::make_unique<SprayRouter>(std::move(fabric), options);
}

}  // namespace rostam::routing
