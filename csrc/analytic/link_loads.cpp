#include "analytic/link_loads.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "routing/minimal_paths.h"
#include "routing/registry.h"

namespace rostam::analytic {

namespace {

// Sprays the weights of many sources towards one destination at once: vertices in order of falling distance
// hand on what they hold in equal parts.
class SprayLoads {
 public:
  explicit SprayLoads(std::shared_ptr<const fabric::Fabric> fabric)
      : held_(static_cast<size_t>(fabric->num_vertices()), 0.0),
        loads_(fabric->links().size(), 0.0),
        paths_(std::move(fabric)) {}

  void aim(int32_t dst) {
    dst_ = dst;
    paths_.aim(dst);
  }

  void inject(int32_t src, double num_bytes) {
    if (src == dst_ || num_bytes == 0) return;
    paths_.check_pair(src);
    hold(src, num_bytes);
  }

  void deliver() {
    for (size_t far = levels_.size(); far-- > 1;) {
      for (const int32_t vertex : levels_[far]) hand_on(vertex);
      levels_[far].clear();
    }
    if (!levels_.empty()) levels_[0].clear();
    held_[static_cast<size_t>(dst_)] = 0;
  }

  std::vector<double>& loads() { return loads_; }

 private:
  void hold(int32_t vertex, double num_bytes) {
    double& held = held_[static_cast<size_t>(vertex)];
    if (held == 0) {
      const size_t far = static_cast<size_t>(paths_.distance(vertex));
      if (levels_.size() <= far) levels_.resize(far + 1);
      levels_[far].push_back(vertex);
    }
    held += num_bytes;
  }

  void hand_on(int32_t vertex) {
    hops_.clear();
    paths_.append_next_hops(vertex, hops_);
    ROSTAM_CHECK(!hops_.empty(), "vertex " << vertex << " has no hop towards accelerator " << dst_);
    const double part = held_[static_cast<size_t>(vertex)] / static_cast<double>(hops_.size());
    held_[static_cast<size_t>(vertex)] = 0;
    for (const fabric::Hop& hop : hops_) {
      loads_[static_cast<size_t>(hop.link)] += part;
      hold(hop.neighbour, part);
    }
  }

  int32_t dst_ = -1;
  std::vector<double> held_;
  std::vector<double> loads_;
  std::vector<std::vector<int32_t>> levels_;  // vertices that hold bytes, by distance
  std::vector<fabric::Hop> hops_;
  routing::MinimalPaths paths_;
};

class RoutedLoads {
 public:
  RoutedLoads(std::shared_ptr<const fabric::Fabric> fabric, const std::string& routing)
      : loads_(fabric->links().size(), 0.0) {
    routing::RouterOptions options;
    options.enable_bundling = false;
    router_ = routing::make_router(routing, std::move(fabric), options);
  }

  void add(int32_t src, int32_t dst, double num_bytes, uint64_t hash) {
    if (src == dst || num_bytes == 0) return;
    for (const routing::LinkShare& part : router_->route(src, dst, hash).links) {
      const int32_t link = router_->members()[static_cast<size_t>(part.link)].front();
      loads_[static_cast<size_t>(link)] += part.share * num_bytes;
    }
  }

  std::vector<double>& loads() { return loads_; }

 private:
  std::vector<double> loads_;
  std::unique_ptr<routing::Router> router_;
};

}  // namespace

std::vector<double> link_loads(std::shared_ptr<const fabric::Fabric> fabric, const std::string& routing,
                               const Flows& flows) {
  if (routing != "spray") {
    RoutedLoads routed(std::move(fabric), routing);
    for (size_t i = 0; i < flows.src.size(); ++i) routed.add(flows.src[i], flows.dst[i], flows.num_bytes[i], i);
    return std::move(routed.loads());
  }
  std::vector<size_t> order(flows.src.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return flows.dst[a] < flows.dst[b]; });
  SprayLoads sprayed(std::move(fabric));
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t flow = order[i];
    if (i == 0 || flows.dst[flow] != flows.dst[order[i - 1]]) {
      if (i > 0) sprayed.deliver();
      sprayed.aim(flows.dst[flow]);
    }
    sprayed.inject(flows.src[flow], flows.num_bytes[flow]);
  }
  if (!order.empty()) sprayed.deliver();
  return std::move(sprayed.loads());
}

std::vector<double> all_to_all_loads(std::shared_ptr<const fabric::Fabric> fabric, const std::string& routing,
                                     double num_bytes) {
  const std::vector<int32_t> healthy = fabric->healthy_accelerators();
  const double part = num_bytes / static_cast<double>(std::max<size_t>(1, healthy.size() - 1));
  if (routing != "spray") {
    RoutedLoads routed(std::move(fabric), routing);
    uint64_t flow = 0;
    for (const int32_t src : healthy) {
      for (const int32_t dst : healthy) routed.add(src, dst, part, flow++);
    }
    return std::move(routed.loads());
  }
  SprayLoads sprayed(std::move(fabric));
  for (const int32_t dst : healthy) {
    sprayed.aim(dst);
    for (const int32_t src : healthy) sprayed.inject(src, part);
    sprayed.deliver();
  }
  return std::move(sprayed.loads());
}

double headroom(const fabric::Fabric& fabric, const std::vector<double>& loads) {
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < loads.size(); ++i) {
    if (loads[i] > 0) least = std::min(least, fabric.links()[i].capacity_bytes_per_s / loads[i]);
  }
  return least;
}

}  // namespace rostam::analytic
