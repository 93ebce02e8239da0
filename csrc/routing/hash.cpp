// hash routing: one minimal path per message, drawn hop by hop from a seeded hash of message and pair (MODEL F18).
#include <utility>

#include "routing/minimal_paths.h"
#include "routing/registry.h"
#include "sim/random.h"

namespace rostam::routing {

namespace {

class HashPolicy : public RoutePolicy {
 public:
  HashPolicy(std::shared_ptr<const fabric::Fabric> fabric, const PolicyOptions& options)
      : links_(*fabric, false), overhead_(options.message_overhead), fabric_(std::move(fabric)), paths_(fabric_) {}

  Route route(int32_t src, int32_t dst, const RouteQuery& query) const override {
    ROSTAM_CHECK(src != dst, "route from accelerator " << src << " to itself");
    paths_.aim(dst);
    paths_.check_pair(src);
    const fabric::Fabric& fabric = paths_.fabric();
    uint64_t state = mix(query.hash ^ mix((static_cast<uint64_t>(src) << 32) | static_cast<uint32_t>(dst)));
    Route route;
    route.links.reserve(static_cast<size_t>(paths_.distance(paths_.start(src))));
    route.src = src;
    route.dst = dst;
    route.latency = overhead_;
    if (query.wants_steps) route.steps.nodes.push_back({src, 0, 0, 0});
    for (int32_t place = paths_.start(src); place != paths_.end();) {
      const fabric::HopSpan hops = paths_.next_hops(place, hops_);
      ROSTAM_CHECK(hops.size() > 0, "vertex " << paths_.vertex_of(place) << " has no hop towards accelerator " << dst);
      state = mix(state);
      const fabric::Hop& hop = hops.first[state % static_cast<uint64_t>(hops.size())];
      const size_t link = static_cast<size_t>(hop.link);
      route.links.push_back({links_.of_link[link], 1.0});
      route.latency += fabric.links()[link].latency;
      if (hop.neighbour != paths_.end()) route.latency += fabric.forward_latency();
      if (query.wants_steps) add_step(route, hop, paths_.phase_behind(place, hop.link));
      place = hop.neighbour;
    }
    if (query.for_packets) paths_.number_channels(route.steps);
    return route;
  }

  // Whatever it draws is a path that spray takes.
  Route every_path(int32_t src, int32_t dst) const override {
    if (all_ == nullptr) all_ = make_spray_policy(fabric_, {SimTime::zero(), false});
    return all_->every_path(src, dst);
  }

  const fabric::Fabric& fabric() const override { return *fabric_; }
  bool is_hash_free() const override { return false; }
  const EngineLinks& links() const override { return links_; }
  int32_t num_virtual_channels() const override { return paths_.num_virtual_channels(); }

 private:
  void add_step(Route& route, const fabric::Hop& hop, int32_t channel) const {
    Steps& steps = route.steps;
    const auto first = static_cast<uint32_t>(steps.hops.size());
    steps.nodes.back().first_hop = first;
    steps.nodes.back().end_hop = first + 1;
    steps.hops.push_back({route.links.back().link, static_cast<uint32_t>(steps.nodes.size()), channel});
    steps.nodes.push_back({paths_.vertex_of(hop.neighbour), paths_.phase_of(hop.neighbour), first + 1, first + 1});
  }

  EngineLinks links_;
  SimTime overhead_;
  std::shared_ptr<const fabric::Fabric> fabric_;
  mutable std::unique_ptr<RoutePolicy> all_;  // once every_path is asked
  mutable MinimalPaths paths_;
  mutable std::vector<fabric::Hop> hops_;
};

}  // namespace

std::unique_ptr<RoutePolicy> make_hash_policy(std::shared_ptr<const fabric::Fabric> fabric,
                                              const PolicyOptions& options) {
  return std::make_unique<HashPolicy>(std::move(fabric), options);
}

}  // namespace rostam::routing
