// ugal routing: every message takes, as it starts, either minimal paths (spray) or Valiant's (valiant): those on which
// it would wait less for others, links' latencies included, minimal ones where that is the same.
// A message that would take t by itself waits on a link for (bytes that cross it with the message + its own) /
// capacity, less t. Where messages share links (flow tier) these bytes are what all others on the link would send
// in t if nothing else held them up. Over a route it waits for the kNorm-norm of that, links weighted with their
// shares: nearly the longest wait, less where few of its bytes meet it. The longest alone would compare Valiant's paths
// by the cable that minimal ones overload, of which they take a small part; the mean would forget it. UGAL compares
// queues times hops where the ways part. Queues at the source tell which paths are full only because full buffers hold
// packets back, all the way from the link that is; the flow tier has no buffers, so the link is read itself, as UGAL-G
// does, which bounds UGAL-L from above. Hops stand for what a packet meets on the way where only the first queue is
// known: here what it meets is, and hops count by their latencies. A message here decides once; packets, which decide
// one by one, are handed both ways and see the queues themselves (UGAL-L, packet/choice.cpp). Where no time passes
// (link loads) flows divide their bytes as SettledLoads does. Source: Singh, "Load-Balanced Routing in Interconnection
// Networks", Stanford 2005, chapter 6; Kim et al., "Technology-Driven, Highly-Scalable Dragonfly Topology", ISCA 2008,
// section 4.2; the rule in a flow's terms: own, its throughput under a shift of groups and under all-to-all in
// tests/routing/test_ugal.py.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "routing/registry.h"
#include "routing/settled_loads.h"
#include "routing/valiant.h"

namespace rostam::routing {

namespace {

constexpr size_t kMaxKept = size_t{1} << 21;  // links of the routes that are kept: 32 MB
constexpr double kRounding = 1e-9;            // waits that differ by less, of what a message takes, are the same
constexpr double kNorm = 16;                  // of 8, 16, 32 the best compromise of uniform and uneven traffic

class UgalPolicy : public RoutePolicy {
 public:
  UgalPolicy(const std::shared_ptr<const fabric::Fabric>& fabric, const PolicyOptions& options)
      : minimal_(make_spray_policy(fabric, {options.message_overhead, false})),
        valiant_(make_valiant_paths(fabric, options)) {}

  Route route(int32_t src, int32_t dst, const RouteQuery& query) const override {
    if (query.for_packets) return route_of_packets(src, dst, query);
    Route minimal = minimal_->route(src, dst, query);
    if (query.backlog == nullptr) return minimal;
    Route other;
    if (takes_minimal(minimal, query, other)) return minimal;
    return query.wants_steps ? valiant_->route(src, dst, query) : other;
  }

  Route every_path(int32_t src, int32_t dst) const override {
    Route all = minimal_->every_path(src, dst);
    const Steps more = valiant_->every_path(src, dst).steps;
    const auto num_nodes = static_cast<uint32_t>(all.steps.nodes.size());
    const auto num_hops = static_cast<uint32_t>(all.steps.hops.size());
    for (Steps::Node node : more.nodes) {
      node.first_hop += num_hops;
      node.end_hop += num_hops;
      all.steps.nodes.push_back(node);
    }
    for (const Steps::Hop& hop : more.hops) {
      all.steps.hops.push_back({hop.link, hop.node + num_nodes, hop.channel});
    }
    return all;
  }

  bool is_hash_free() const override { return false; }
  bool reads_backlog() const override { return true; }
  const fabric::Fabric& fabric() const override { return minimal_->fabric(); }
  const EngineLinks& links() const override { return minimal_->links(); }
  int32_t num_virtual_channels() const override { return valiant_->num_virtual_channels(); }
  std::string note() const override { return valiant_->note(); }

  void add_loads(const Flows& flows, std::vector<double>& loads) const override {
    SettledLoads settled(*valiant_);
    for (size_t i = 0; i < flows.src.size(); ++i) settled.add(flows.src[i], flows.dst[i], flows.num_bytes[i]);
    add(settled.loads(), loads);
  }

  void add_uniform_loads(const std::vector<int32_t>& members, double num_bytes,
                         std::vector<double>& loads) const override {
    SettledLoads settled(*valiant_);
    settled.add_uniform(members, num_bytes);
    add(settled.loads(), loads);
  }

 private:
  // Packets choose one by one, each where its two ways part.
  Route route_of_packets(int32_t src, int32_t dst, const RouteQuery& query) const {
    Route route = valiant_->route(src, dst, query);
    route.detours.is_choice = true;
    return route;
  }

  static void add(const std::vector<double>& more, std::vector<double>& loads) {
    for (size_t l = 0; l < loads.size(); ++l) loads[l] += more[l];
  }

  double capacity(int32_t link) const { return links().capacities[static_cast<size_t>(link)]; }

  // Seconds that a message takes over these links by itself.
  double alone_s(const std::vector<LinkShare>& route, double num_bytes) const {
    double slowest = 0;
    for (const LinkShare& part : route) slowest = std::max(slowest, part.share / capacity(part.link));
    return slowest * num_bytes;
  }

  // Seconds that it waits for others there, if it takes `alone` by itself. REQUIRES: alone > 0.
  double waits_s(const std::vector<LinkShare>& route, double alone, const RouteQuery& query) const {
    double sum = 0;
    for (const LinkShare& part : route) {
      const double bytes = query.backlog->bytes_beside(part.link, alone) + part.share * query.num_bytes;
      const double excess = bytes / capacity(part.link) / alone - 1;
      if (excess > 0) sum += part.share * std::pow(excess, kNorm);
    }
    return alone * std::pow(sum, 1 / kNorm);
  }

  // Whether a message takes `minimal`; else `other` is Valiant's route.
  bool takes_minimal(const Route& minimal, const RouteQuery& query, Route& other) const {
    const double alone = alone_s(minimal.links, query.num_bytes);
    if (alone <= 0) return true;
    const double waits = waits_s(minimal.links, alone, query);
    if (waits <= alone * kRounding) return true;
    other = valiant_route(minimal.src, minimal.dst);
    const double longer = (other.latency - minimal.latency).seconds();
    const double waits_there = waits_s(other.links, alone_s(other.links, query.num_bytes), query);
    return waits <= longer + waits_there + alone * kRounding;
  }

  Route valiant_route(int32_t src, int32_t dst) const {
    if (valiant_->has_halves()) return valiant_->route_of(src, dst, valiant_->halves(src, dst));
    const auto found = pairs_.find({src, dst});
    if (found != pairs_.end()) return found->second;
    Route route = valiant_->route(src, dst, {});
    num_kept_ += route.links.size();
    if (num_kept_ > kMaxKept) {
      pairs_.clear();
      num_kept_ = route.links.size();
    }
    return pairs_.emplace(std::make_pair(src, dst), std::move(route)).first->second;
  }

  std::unique_ptr<RoutePolicy> minimal_;
  std::unique_ptr<ValiantPaths> valiant_;
  mutable std::map<std::pair<int32_t, int32_t>, Route> pairs_;  // Valiant's, where they are not put together
  mutable size_t num_kept_ = 0;
};

}  // namespace

std::unique_ptr<RoutePolicy> make_ugal_policy(std::shared_ptr<const fabric::Fabric> fabric,
                                              const PolicyOptions& options) {
  return std::make_unique<UgalPolicy>(fabric, options);
}

}  // namespace rostam::routing
