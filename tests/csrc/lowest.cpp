// lowest: of the minimal paths the one that takes the lowest neighbour, then the lowest link, at each hop.
#include <algorithm>
#include <utility>

#include "routing/minimal_paths.h"
#include "routing/registry.h"

namespace rostam::routing {

namespace {

class LowestPolicy : public RoutePolicy {
 public:
  LowestPolicy(std::shared_ptr<const fabric::Fabric> fabric, const PolicyOptions& options)
      : links_(*fabric, false), overhead_(options.message_overhead), paths_(std::move(fabric)) {}

  Route route(int32_t src, int32_t dst, const RouteQuery&) const override {
    paths_.aim(dst);
    paths_.check_pair(src);
    Route route;
    route.src = src;
    route.dst = dst;
    route.latency = overhead_;
    for (int32_t place = paths_.start(src); place != paths_.end();) {
      const fabric::HopSpan hops = paths_.next_hops(place, hops_);
      const auto by_id = [](const fabric::Hop& a, const fabric::Hop& b) {
        return a.neighbour != b.neighbour ? a.neighbour < b.neighbour : a.link < b.link;
      };
      const fabric::Hop hop = *std::min_element(hops.begin(), hops.end(), by_id);
      route.links.push_back({links_.of_link[static_cast<size_t>(hop.link)], 1.0});
      route.latency += paths_.fabric().links()[static_cast<size_t>(hop.link)].latency;
      if (hop.neighbour != paths_.end()) route.latency += paths_.fabric().forward_latency();
      place = hop.neighbour;
    }
    return route;
  }

  bool is_hash_free() const override { return true; }
  const fabric::Fabric& fabric() const override { return paths_.fabric(); }
  const EngineLinks& links() const override { return links_; }

 private:
  EngineLinks links_;
  SimTime overhead_;
  mutable MinimalPaths paths_;
  mutable std::vector<fabric::Hop> hops_;
};

}  // namespace

std::unique_ptr<RoutePolicy> make_lowest_policy(std::shared_ptr<const fabric::Fabric> fabric,
                                                const PolicyOptions& options) {
  return std::make_unique<LowestPolicy>(std::move(fabric), options);
}

}  // namespace rostam::routing
