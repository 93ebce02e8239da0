// hash routing: one minimal path per message, drawn hop by hop from a seeded hash of message and pair (MODEL F18).
#include <utility>

#include "routing/engine_links.h"
#include "routing/minimal_paths.h"
#include "routing/registry.h"
#include "sim/random.h"

namespace rostam::routing {

namespace {

class HashRouter : public Router {
 public:
  HashRouter(std::shared_ptr<const fabric::Fabric> fabric, const RouterOptions& options)
      : links_(*fabric, false), overhead_(options.message_overhead), paths_(std::move(fabric)) {}

  Route route(int32_t src, int32_t dst, uint64_t message_hash) const override {
    ROSTAM_CHECK(src != dst, "route from accelerator " << src << " to itself");
    paths_.aim(dst);
    paths_.check_pair(src);
    const fabric::Fabric& fabric = paths_.fabric();
    uint64_t state = mix(message_hash ^ mix((static_cast<uint64_t>(src) << 32) | static_cast<uint32_t>(dst)));
    Route route;
    route.src = src;
    route.dst = dst;
    route.latency = overhead_;
    for (int32_t vertex = src; vertex != dst;) {
      hops_.clear();
      paths_.append_next_hops(vertex, hops_);
      ROSTAM_CHECK(!hops_.empty(), "vertex " << vertex << " has no hop towards accelerator " << dst);
      state = mix(state);
      const fabric::Hop& hop = hops_[state % hops_.size()];
      const size_t link = static_cast<size_t>(hop.link);
      route.links.push_back({links_.of_link[link], 1.0});
      route.latency += fabric.links()[link].latency;
      if (hop.neighbour != dst) route.latency += fabric.forward_latency();
      vertex = hop.neighbour;
    }
    return route;
  }

  const fabric::Fabric& fabric() const override { return paths_.fabric(); }
  bool is_hash_free() const override { return false; }
  const std::vector<double>& capacities() const override { return links_.capacities; }
  const std::vector<std::vector<int32_t>>& members() const override { return links_.members; }

 private:
  EngineLinks links_;
  SimTime overhead_;
  mutable MinimalPaths paths_;
  mutable std::vector<fabric::Hop> hops_;
};

}  // namespace

std::unique_ptr<Router> make_hash_router(std::shared_ptr<const fabric::Fabric> fabric, const RouterOptions& options) {
  return std::make_unique<HashRouter>(std::move(fabric), options);
}

}  // namespace rostam::routing
