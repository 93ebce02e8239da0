// valiant routing: every message is spread equally over all intermediate vertices, with minimal paths sprayed to each
// of them and on from it, which evens out any pattern at the price of longer ways. Intermediate are all switches with
// accelerators of their own, or all accelerators where they forward; by way of an end's own one the way is minimal, as
// it is between accelerators of one server. After failures a message goes by way of those from which both its ends are
// reached without detours (fabric::PathRule), if there are such.
// It is the mean of packets that draw an intermediate vertex each. Steps: one graph for each intermediate vertex;
// phases (virtual channels) behind it are others than before it. Source: Valiant, "A Scheme for Fast Parallel
// Communication", SIAM J. Computing 1982; on Dragonflies by way of a router, where Kim et al. (ISCA 2008, section 4.1)
// go by way of a group.
#include "routing/valiant.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "routing/registry.h"
#include "routing/spray.h"
#include "routing/waypoints.h"

namespace rostam::routing {

namespace {

constexpr double kRounding = 1e-12;           // sums of n-ths that should make 1 differ from it by rounding alone
constexpr size_t kMaxKept = size_t{1} << 22;  // links of the halves that are kept: 64 MB

// Channels of packets, which first parts of ways share with minimal paths: even ones, those of second parts are odd.
// They keep their numbers where failures add phases.
void set_part(int32_t part, Steps& steps) {
  for (Steps::Hop& hop : steps.hops) hop.channel = 2 * hop.channel + part;
}

// Minimal paths between ends and vertices on the way.
class Legs : public Waypoints {
 public:
  explicit Legs(std::shared_ptr<const SprayPaths> spray) : spray_(std::move(spray)) {}
  Steps leg(int32_t from, int32_t to, int32_t part) const override {
    Steps steps = spray_->between(from, to, true).steps;
    spray_->number_channels(steps);
    set_part(part, steps);
    return steps;
  }

 private:
  std::shared_ptr<const SprayPaths> spray_;
};

class ValiantPolicy : public ValiantPaths {
 public:
  ValiantPolicy(const std::shared_ptr<const fabric::Fabric>& fabric, const PolicyOptions& options)
      : overhead_(options.message_overhead),
        spray_(make_spray_paths(fabric, SimTime::zero(), nullptr)),
        share_of_(links().capacities.size(), 0.0) {
    num_phases_ = fabric->path_rule() == nullptr ? 1 : fabric->path_rule()->num_phases();
    for (int32_t v = 0; v < fabric->num_vertices(); ++v) {
      if (is_intermediate(v)) intermediate_.push_back(v);
    }
    shared_ = std::make_shared<const std::vector<int32_t>>(intermediate_);
    legs_ = std::make_shared<const Legs>(spray_);
  }

  Route route(int32_t src, int32_t dst, const RouteQuery& query) const override {
    ROSTAM_CHECK(src != dst, "route from accelerator " << src << " to itself");
    Route route;
    const std::vector<int32_t> by = vertices_between(src, dst, route);
    if (query.for_packets) return route_of_packets(src, dst, query, by);
    if (by.empty()) return finished(query.wants_steps ? spray_->route(src, dst, query) : std::move(route));
    route.links.clear();
    begin_shares();
    const double share = 1.0 / static_cast<double>(by.size());
    for (const int32_t vertex : by) {
      SimTime latency = fabric().forward_latency();
      if (vertex == src || vertex == dst) {
        latency = take(spray_->between(src, dst, query.wants_steps), share, 0, route);
      } else {
        latency += take(spray_->between(src, vertex, query.wants_steps), share, 0, route);
        latency += take(spray_->between(vertex, dst, query.wants_steps), share, num_phases_, route);
      }
      route.latency = std::max(route.latency, latency);
    }
    take_shares(route.links);
    return finished(std::move(route));
  }

  std::vector<int32_t> by_way_of(int32_t src, int32_t dst) const override {
    Route minimal;
    return vertices_between(src, dst, minimal);
  }

  int32_t site(int32_t accelerator, bool is_source, int32_t& link) const override {
    const fabric::HopSpan hops = is_source ? fabric().out(accelerator) : fabric().in(accelerator);
    if (fabric().can_forward(accelerator) || hops.size() != 1) return accelerator;
    if (!fabric().can_forward(hops.first->neighbour)) return accelerator;
    link = links().of_link[static_cast<size_t>(hops.first->link)];
    return hops.first->neighbour;
  }

  const SprayPaths& paths() const override { return *spray_; }

  bool has_halves() const override { return is_uniform(); }

  Halves halves(int32_t src, int32_t dst) const override {
    Halves found;
    const int32_t from = site(src, true, found.first), to = site(dst, false, found.last);
    found.towards = half(from, true);
    found.onwards = half(to, false);
    return found;
  }

  Route route_of(int32_t src, int32_t dst, const Halves& halves) const override {
    Route route;
    route.src = src;
    route.dst = dst;
    const SimTime forward = fabric().forward_latency();
    for (size_t k = 0; k < intermediate_.size(); ++k) {
      const SimTime latency = halves.towards->latencies[k] + forward + halves.onwards->latencies[k];
      route.latency = k == 0 ? latency : std::max(route.latency, latency);
    }
    for (const int32_t link : {halves.first, halves.last}) {
      if (link < 0) continue;
      route.links.push_back({link, 1.0});
      route.latency += forward + latency_of(link);
    }
    begin_shares();
    for (const Half* half : {halves.towards.get(), halves.onwards.get()}) {
      for (const LinkShare& part : half->links) add_share(part.link, part.share);
    }
    take_shares(route.links);
    return finished(std::move(route));
  }

  bool is_hash_free() const override { return true; }
  const fabric::Fabric& fabric() const override { return spray_->fabric(); }
  const EngineLinks& links() const override { return spray_->links(); }
  int32_t num_virtual_channels() const override {
    return (intermediate_.empty() ? 1 : 2) * spray_->num_virtual_channels();
  }

  std::string note() const override {
    if (intermediate_.size() > 1) return {};
    const std::string why =
        intermediate_.empty() ? " has no vertex to go by way of" : " has a single switch to go by way of";
    return "fabric " + fabric().name() + why + ": Valiant's paths are the minimal ones there";
  }

  void add_loads(const Flows& flows, std::vector<double>& loads) const override {
    if (!is_uniform()) return RoutePolicy::add_loads(flows, loads);
    std::vector<double> sent(num_vertices(), 0.0), received(num_vertices(), 0.0);
    for (size_t i = 0; i < flows.src.size(); ++i) {
      if (flows.src[i] == flows.dst[i]) continue;
      sent[static_cast<size_t>(flows.src[i])] += flows.num_bytes[i];
      received[static_cast<size_t>(flows.dst[i])] += flows.num_bytes[i];
    }
    add_stages(sent, received, loads);
  }

  void add_uniform_loads(const std::vector<int32_t>& members, double num_bytes,
                         std::vector<double>& loads) const override {
    if (!is_uniform()) return RoutePolicy::add_uniform_loads(members, num_bytes, loads);
    std::vector<double> sent(num_vertices(), 0.0);
    for (const int32_t one : members) {
      sent[static_cast<size_t>(one)] = num_bytes * static_cast<double>(members.size() - 1);
    }
    add_stages(sent, sent, loads);
  }

 private:
  size_t num_vertices() const { return static_cast<size_t>(fabric().num_vertices()); }

  // minimal: found on the way.
  std::vector<int32_t> vertices_between(int32_t src, int32_t dst, Route& minimal) const {
    minimal = spray_->route(src, dst, {});  // names a pair without one
    return stays_inside_server(minimal) ? std::vector<int32_t>() : on_the_way(src, dst);
  }

  SimTime latency_of(int32_t engine_link) const {
    return fabric().links()[static_cast<size_t>(links().members[static_cast<size_t>(engine_link)].front())].latency;
  }

  std::shared_ptr<const Half> half(int32_t vertex, bool is_towards) const {
    std::shared_ptr<const Half>& kept = halves_[2 * static_cast<int64_t>(vertex) + (is_towards ? 1 : 0)];
    if (kept != nullptr) return kept;
    auto found = std::make_shared<Half>();
    begin_shares();
    const double share = 1.0 / static_cast<double>(intermediate_.size());
    for (const int32_t other : intermediate_) {
      if (other == vertex) {  // nothing is forwarded twice there
        found->latencies.push_back(SimTime::zero() - fabric().forward_latency());
        continue;
      }
      const Route part = is_towards ? spray_->between(vertex, other, false) : spray_->between(other, vertex, false);
      for (const LinkShare& hop : part.links) add_share(hop.link, share * hop.share);
      found->latencies.push_back(part.latency);
    }
    take_shares(found->links);
    num_kept_ += found->links.size();
    std::shared_ptr<const Half> half = std::move(found);
    if (num_kept_ > kMaxKept) {
      halves_.clear();
      num_kept_ = half->links.size();
      halves_[2 * static_cast<int64_t>(vertex) + (is_towards ? 1 : 0)] = half;
    } else {
      kept = half;
    }
    return half;
  }

  // What an error or an interruption has left is dropped.
  void begin_shares() const {
    for (const int32_t link : used_) share_of_[static_cast<size_t>(link)] = 0;
    used_.clear();
  }

  void add_share(int32_t link, double share) const {
    double& sum = share_of_[static_cast<size_t>(link)];
    if (sum == 0) used_.push_back(link);
    sum += share;
  }

  // Appends the shares that were added, which are 0 then.
  void take_shares(std::vector<LinkShare>& taken) const {
    taken.reserve(taken.size() + used_.size());
    for (const int32_t link : used_) taken.push_back({link, std::exchange(share_of_[static_cast<size_t>(link)], 0.0)});
  }

  bool stays_inside_server(const Route& route) const {
    return std::all_of(route.links.begin(), route.links.end(), [this](const LinkShare& hop) {
      return links().classes[static_cast<size_t>(hop.link)] == static_cast<int32_t>(fabric::LinkClass::kServer);
    });
  }

  // Every accelerator reaches every intermediate vertex, and is reached from it; no two share a server.
  bool is_uniform() const {
    if (!is_known_) {
      const std::vector<int32_t>& classes = links().classes;
      const bool has_servers =
          std::find(classes.begin(), classes.end(), static_cast<int32_t>(fabric::LinkClass::kServer)) != classes.end();
      is_uniform_ = !intermediate_.empty() && !has_servers;
      for (const int32_t vertex : intermediate_) {
        for (int32_t a = 0; is_uniform_ && a < fabric().num_accelerators(); ++a) {
          is_uniform_ = spray_->reaches(a, vertex, false);
        }
      }
      for (int32_t a = 0; is_uniform_ && a < fabric().num_accelerators(); ++a) {
        for (const int32_t vertex : intermediate_) is_uniform_ = is_uniform_ && spray_->reaches(vertex, a, false);
      }
      is_known_ = true;
    }
    return is_uniform_;
  }

  bool is_intermediate(int32_t vertex) const {
    const int32_t first = fabric().num_accelerators(), end = first + fabric().num_switches();
    if (fabric().is_vertex_failed(vertex) || !fabric().can_forward(vertex)) return false;
    if (vertex < first) return true;
    if (vertex >= end || fabric().can_forward(0)) return false;
    const fabric::HopSpan in = fabric().in(vertex);
    return std::any_of(in.begin(), in.end(), [first, end](const fabric::Hop& hop) {
      return hop.neighbour < first || hop.neighbour >= end;  // an accelerator, or its NIC
    });
  }

  std::vector<int32_t> on_the_way(int32_t src, int32_t dst) const {
    if (is_uniform()) return intermediate_;
    std::vector<int32_t> found;
    for (const bool by_detours : {false, true}) {
      for (const int32_t vertex : intermediate_) {
        if (spray_->reaches(vertex, dst, by_detours) && spray_->reaches(src, vertex, by_detours)) {
          found.push_back(vertex);
        }
      }
      if (!found.empty()) break;
    }
    return found;
  }

  // Packets draw a vertex each: the minimal route, with what they may draw as its detours.
  Route route_of_packets(int32_t src, int32_t dst, const RouteQuery& query, const std::vector<int32_t>& by) const {
    Route route = spray_->route(src, dst, query);
    if (!intermediate_.empty()) set_part(0, route.steps);
    if (!by.empty()) {
      route.detours.legs = legs_;
      route.detours.vertices = is_uniform() ? shared_ : std::make_shared<const std::vector<int32_t>>(by);
    }
    return finished(std::move(route));
  }

  // Adds a part of the way, taken by a share of the message; steps follow the ones before, or go on from their end.
  SimTime take(const Route& part, double share, int32_t first_phase, Route& route) const {
    for (const LinkShare& hop : part.links) add_share(hop.link, share * hop.share);
    std::vector<Steps::Node>& nodes = route.steps.nodes;
    const bool goes_on = first_phase > 0 && !nodes.empty();
    const auto num_hops = static_cast<uint32_t>(route.steps.hops.size());
    const auto num_nodes = static_cast<uint32_t>(nodes.size()) - (goes_on ? 1 : 0);
    for (const Steps::Hop& hop : part.steps.hops) {
      route.steps.hops.push_back({hop.link, hop.node + num_nodes, hop.channel + first_phase});
    }
    for (size_t n = 0; n < part.steps.nodes.size(); ++n) {
      Steps::Node node = part.steps.nodes[n];
      node.first_hop += num_hops;
      node.end_hop += num_hops;
      node.phase += first_phase;
      if (n > 0 || !goes_on) {
        nodes.push_back(node);
        continue;
      }
      nodes.back().first_hop = node.first_hop;
      nodes.back().end_hop = node.end_hop;
    }
    return part.latency;
  }

  Route finished(Route route) const {
    route.latency += overhead_;
    for (LinkShare& part : route.links) {
      if (part.share > 1 - kRounding && part.share < 1 + kRounding) part.share = 1;
    }
    return route;
  }

  // Both halves of all ways, where every pair has the same intermediate vertices: each sends an equal part to each of
  // them, and each of these an equal part of what is received to every destination.
  void add_stages(std::vector<double> sent, std::vector<double> received, std::vector<double>& loads) const {
    const auto count = static_cast<double>(intermediate_.size());
    for (double& bytes : sent) bytes /= count;
    for (const int32_t vertex : intermediate_) spray_->add_loads_to(vertex, sent, loads);
    std::vector<double> held(num_vertices(), 0.0);
    for (size_t dst = 0; dst < received.size(); ++dst) {
      if (received[dst] == 0) continue;
      for (const int32_t vertex : intermediate_) held[static_cast<size_t>(vertex)] = received[dst] / count;
      spray_->add_loads_to(static_cast<int32_t>(dst), held, loads);
    }
  }

  SimTime overhead_;
  std::shared_ptr<const SprayPaths> spray_;
  int32_t num_phases_ = 1;
  std::vector<int32_t> intermediate_;
  std::shared_ptr<const std::vector<int32_t>> shared_;  // the same
  std::shared_ptr<const Waypoints> legs_;
  mutable bool is_known_ = false, is_uniform_ = false;
  mutable std::vector<double> share_of_;  // engine link -> share, zero between calls
  mutable std::vector<int32_t> used_;
  mutable std::unordered_map<int64_t, std::shared_ptr<const Half>> halves_;  // by 2 vertex + (towards the others)
  mutable size_t num_kept_ = 0;
};

}  // namespace

std::unique_ptr<ValiantPaths> make_valiant_paths(const std::shared_ptr<const fabric::Fabric>& fabric,
                                                 const PolicyOptions& options) {
  return std::make_unique<ValiantPolicy>(fabric, options);
}

std::unique_ptr<RoutePolicy> make_valiant_policy(std::shared_ptr<const fabric::Fabric> fabric,
                                                 const PolicyOptions& options) {
  return std::make_unique<ValiantPolicy>(fabric, options);
}

}  // namespace rostam::routing
