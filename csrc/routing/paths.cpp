#include "routing/paths.h"

#include <algorithm>

#include "sim/errors.h"

namespace rostam::routing {

namespace {

// What a message waits for on the way, without its overhead.
SimTime latency_of(const RoutePolicy& policy, const std::vector<int32_t>& links) {
  const fabric::Fabric& fabric = policy.fabric();
  SimTime total;
  for (size_t i = 0; i < links.size(); ++i) {
    const auto link = static_cast<size_t>(policy.links().members[static_cast<size_t>(links[i])].front());
    total += fabric.links()[link].latency;
    if (i > 0) total += fabric.forward_latency();
  }
  return total;
}

class PathWalk {
 public:
  PathWalk(const RoutePolicy& policy, const Route& all, size_t most) : policy_(policy), all_(all), most_(most) {}

  std::vector<Path> walk() {
    visit(0);
    return std::move(found_);
  }

 private:
  void visit(uint32_t number) {
    const Steps::Node& node = all_.steps.nodes[number];
    if (node.first_hop == node.end_hop) return add();
    std::vector<Steps::Hop> hops(all_.steps.hops.begin() + node.first_hop, all_.steps.hops.begin() + node.end_hop);
    std::sort(hops.begin(), hops.end(), [this](const Steps::Hop& a, const Steps::Hop& b) {
      const int32_t left = all_.steps.nodes[a.node].vertex, right = all_.steps.nodes[b.node].vertex;
      return left != right ? left < right : a.link < b.link;
    });
    for (const Steps::Hop& hop : hops) {
      links_.push_back(hop.link);
      visit(hop.node);
      links_.pop_back();
    }
  }

  void add() {
    if (found_.size() == most_) {
      ROSTAM_THROW(ConfigError, "more than " << most_ << " paths lead from accelerator " << all_.src << " to "
                                             << all_.dst << "; a choice among single paths is for fabrics with fewer");
    }
    found_.push_back({links_, latency_of(policy_, links_)});
  }

  const RoutePolicy& policy_;
  const Route& all_;
  size_t most_;
  std::vector<int32_t> links_;
  std::vector<Path> found_;
};

}  // namespace

std::vector<Path> paths_of(const RoutePolicy& policy, int32_t src, int32_t dst, size_t most) {
  const Route all = policy.every_path(src, dst);
  std::vector<Path> found = PathWalk(policy, all, most).walk();
  // A route's latency is that of its longest path and the overhead.
  const Route usual = policy.route(src, dst, {});
  const bool is_single =
      std::all_of(usual.links.begin(), usual.links.end(), [](const LinkShare& one) { return one.share == 1; });
  SimTime longest;
  if (is_single) {
    std::vector<int32_t> links;
    for (const LinkShare& one : usual.links) links.push_back(one.link);
    longest = latency_of(policy, links);
  } else {
    for (const Path& path : found) longest = std::max(longest, path.latency);
  }
  for (Path& path : found) path.latency += usual.latency - longest;
  return found;
}

}  // namespace rostam::routing
