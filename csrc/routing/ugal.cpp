// ugal routing (UGAL-L): every message takes, as it starts, either minimal paths (spray) or Valiant's (valiant), by
// what is known where the two part: minimal ones if what waits there on their links, times their length, is no more
// than on Valiant's. Both are means over shares: bytes waiting for a link, and links between vertices that forward.
// Packets that decide one by one see the same queues; a message here decides once. Where no time passes (link loads),
// what earlier flows have put on a link waits for it. Source: Singh, "Load-Balanced Routing in Interconnection
// Networks", Stanford 2005, chapter 6 (queue times hops); Kim et al., "Technology-Driven, Highly-Scalable Dragonfly
// Topology", ISCA 2008, section 4.2 (UGAL-L reads the source router's own queues); one decision for each message: own.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "routing/registry.h"

namespace rostam::routing {

namespace {

constexpr size_t kMaxKept = size_t{1} << 21;  // links of the routes that are kept: 32 MB

// What flows that were summed up before have put on links.
class SummedLoads : public LinkBacklog {
 public:
  explicit SummedLoads(const std::vector<double>& loads) : loads_(loads) {}
  double bytes_waiting(int32_t link) const override { return loads_[static_cast<size_t>(link)]; }

 private:
  const std::vector<double>& loads_;
};

class UgalPolicy : public RoutePolicy {
 public:
  UgalPolicy(const std::shared_ptr<const fabric::Fabric>& fabric, const PolicyOptions& options)
      : minimal_(make_spray_policy(fabric, {options.message_overhead, false})),
        valiant_(make_valiant_policy(fabric, options)) {}

  Route route(int32_t src, int32_t dst, const RouteQuery& query) const override {
    const bool is_minimal = takes_minimal(src, dst, query.backlog);
    if (query.wants_steps) return (is_minimal ? minimal_ : valiant_)->route(src, dst, query);
    return is_minimal ? minimal_->route(src, dst, query) : pair(src, dst).valiant;
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
  std::string note() const override { return valiant_->note(); }

  void add_loads(const Flows& flows, std::vector<double>& loads) const override {
    for (size_t i = 0; i < flows.src.size(); ++i) add(flows.src[i], flows.dst[i], flows.num_bytes[i], loads);
  }

  // In rounds in which every member sends once, so that no member's flows are all decided before another's.
  void add_uniform_loads(const std::vector<int32_t>& members, double num_bytes,
                         std::vector<double>& loads) const override {
    for (size_t shift = 1; shift < members.size(); ++shift) {
      for (size_t k = 0; k < members.size(); ++k) {
        add(members[k], members[(k + shift) % members.size()], num_bytes, loads);
      }
    }
  }

 private:
  struct Pair {
    Route minimal, valiant;
    std::vector<LinkShare> minimal_first, valiant_first;  // where the two part
    double minimal_hops = 0, valiant_hops = 0;
  };

  void add(int32_t src, int32_t dst, double num_bytes, std::vector<double>& loads) const {
    if (src == dst || num_bytes == 0) return;
    const SummedLoads summed(loads);
    const Route found = route(src, dst, {0, false, &summed});
    for (const LinkShare& part : found.links) loads[static_cast<size_t>(part.link)] += part.share * num_bytes;
  }

  bool takes_minimal(int32_t src, int32_t dst, const LinkBacklog* backlog) const {
    if (backlog == nullptr) return true;
    const Pair& both = pair(src, dst);
    const double minimal = waiting(both.minimal_first, *backlog) * both.minimal_hops;
    return minimal == 0 || minimal <= waiting(both.valiant_first, *backlog) * both.valiant_hops;
  }

  // The mean over the links' shares.
  static double waiting(const std::vector<LinkShare>& first, const LinkBacklog& backlog) {
    double bytes = 0, total = 0;
    for (const LinkShare& one : first) {
      bytes += one.share * backlog.bytes_waiting(one.link);
      total += one.share;
    }
    return total == 0 ? 0 : bytes / total;
  }

  const Pair& pair(int32_t src, int32_t dst) const {
    const auto found = pairs_.find({src, dst});
    if (found != pairs_.end()) return found->second;
    Pair both;
    both.minimal = minimal_->route(src, dst, {});
    both.valiant = valiant_->route(src, dst, {});
    both.minimal_hops = hops_of(both.minimal);
    both.valiant_hops = hops_of(both.valiant);
    find_parting(src, dst, both);
    num_kept_ += both.minimal.links.size() + both.valiant.links.size();
    if (num_kept_ > kMaxKept) {
      pairs_.clear();
      num_kept_ = both.minimal.links.size() + both.valiant.links.size();
    }
    return pairs_.emplace(std::make_pair(src, dst), std::move(both)).first->second;
  }

  const fabric::Link& link_of(int32_t engine_link) const {
    return fabric().links()[static_cast<size_t>(links().members[static_cast<size_t>(engine_link)].front())];
  }

  double hops_of(const Route& route) const {
    double hops = 0;
    for (const LinkShare& one : route.links) {
      const fabric::Link& link = link_of(one.link);
      if (fabric().can_forward(link.src) && fabric().can_forward(link.dst)) hops += one.share;
    }
    return hops;
  }

  std::vector<LinkShare> out_of(const Route& route, int32_t vertex) const {
    std::vector<LinkShare> found;
    for (const LinkShare& one : route.links) {
      if (link_of(one.link).src == vertex) found.push_back(one);
    }
    return found;
  }

  // Both follow the only link out, the same, up to the first vertex with more of them.
  void find_parting(int32_t src, int32_t dst, Pair& both) const {
    for (int32_t at = src; at != dst;) {
      both.minimal_first = out_of(both.minimal, at);
      both.valiant_first = out_of(both.valiant, at);
      const bool is_one = both.minimal_first.size() == 1 && both.valiant_first.size() == 1 &&
                          both.minimal_first.front().link == both.valiant_first.front().link;
      if (!is_one) return;
      at = link_of(both.minimal_first.front().link).dst;
    }
  }

  std::unique_ptr<RoutePolicy> minimal_, valiant_;
  mutable std::map<std::pair<int32_t, int32_t>, Pair> pairs_;
  mutable size_t num_kept_ = 0;
};

}  // namespace

std::unique_ptr<RoutePolicy> make_ugal_policy(std::shared_ptr<const fabric::Fabric> fabric,
                                              const PolicyOptions& options) {
  return std::make_unique<UgalPolicy>(fabric, options);
}

}  // namespace rostam::routing
