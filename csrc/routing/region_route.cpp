#include "routing/region_route.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "sim/interrupt.h"

namespace rostam::routing {

namespace {

// Trees that share the bytes of one owner at most: those of all owners together use ways alike before that.
constexpr int64_t kMostTrees = 64;

bool adds(SwitchOp op) { return op != SwitchOp::kMulticast; }
bool copies(SwitchOp op) { return op != SwitchOp::kReduce; }

class RegionRouter {
 public:
  RegionRouter(const RoutePolicy& policy, SwitchOp op, const std::vector<int32_t>& members, size_t owner)
      : policy_(policy), fabric_(policy.fabric()), op_(op), members_(members), owner_(owner), root_(members[owner]) {
    const auto p = static_cast<double>(members.size());
    // Of what all sources send together: p or p + 1 parts, or the owner's alone.
    part_ = op == SwitchOp::kPull ? 1 / (p + 1) : op == SwitchOp::kMulticast ? 1 : 1 / p;
  }

  Route make() {
    search();
    find_choices();
    Route route;
    route.src = route.dst = root_;
    for (const int32_t member : members_) route.ends.push_back({member, 0, 0});
    for (int64_t tree = 0; tree < num_trees_; ++tree) add_tree(static_cast<int64_t>(owner_) * num_trees_ + tree, route);
    for (const auto& [link, share] : shares_) route.links.push_back({link, share});
    std::sort(route.links.begin(), route.links.end(),
              [](const LinkShare& a, const LinkShare& b) { return a.link < b.link; });
    return route;
  }

 private:
  // Links from every vertex to the root, no farther away than the farthest member.
  void search() {
    size_t missing = members_.size() - 1;
    const std::vector<int32_t> sorted = sorted_members();
    std::vector<int32_t> queue = {root_};
    if (fabric_.is_vertex_failed(root_)) queue.clear();
    distance_[root_] = 0;
    int32_t last = -1;  // distance of the farthest member, once all are found
    for (size_t next = 0; next < queue.size(); ++next) {
      const int32_t vertex = queue[next], there = distance_[vertex];
      if (missing == 0 && there >= last) break;
      if (vertex != root_ && !fabric_.can_forward(vertex)) continue;
      for (const fabric::Hop& hop : fabric_.in(vertex)) {
        if (!distance_.try_emplace(hop.neighbour, there + 1).second) continue;
        queue.push_back(hop.neighbour);
        if (!std::binary_search(sorted.begin(), sorted.end(), hop.neighbour)) continue;
        --missing;
        last = there + 1;
      }
    }
    if (missing == 0) return;
    const auto cut =
        std::find_if(members_.begin(), members_.end(), [this](int32_t member) { return distance_.count(member) == 0; });
    const int32_t lost = cut == members_.end() ? root_ : *cut;
    ROSTAM_THROW(NoRouteError, "no path from accelerator " << lost << " to " << root_ << ", which switches add up for"
                                                           << fabric_.no_route_hint());
  }

  std::vector<int32_t> sorted_members() const {
    std::vector<int32_t> sorted = members_;
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  }

  std::vector<fabric::Hop> hops_of(int32_t vertex) const {
    std::vector<fabric::Hop> hops;
    const int32_t next = distance_.at(vertex) - 1;
    for (const fabric::Hop& hop : fabric_.out(vertex)) {
      const auto found = distance_.find(hop.neighbour);
      const bool is_on_way = found != distance_.end() && found->second == next;
      if (is_on_way && (hop.neighbour == root_ || fabric_.can_forward(hop.neighbour))) hops.push_back(hop);
    }
    return hops;
  }

  // How many next hops vertices at each distance have at most, those of one bundle counted once, and from that how many
  // trees use all ways alike, those of all owners together.
  void find_choices() {
    std::vector<std::vector<int32_t>> by_distance;
    std::unordered_map<int32_t, bool> seen;
    const auto add = [&](int32_t vertex) {
      if (vertex == root_ || !seen.try_emplace(vertex, true).second) return;
      const auto at = static_cast<size_t>(distance_.at(vertex));
      if (by_distance.size() <= at) by_distance.resize(at + 1);
      by_distance[at].push_back(vertex);
    };
    for (const int32_t member : members_) add(member);
    choices_.assign(by_distance.size(), 1);
    for (size_t at = by_distance.size(); at-- > 1;) {
      if (by_distance.size() <= at) continue;
      for (size_t k = 0; k < by_distance[at].size(); ++k) {
        const std::vector<fabric::Hop> hops = hops_of(by_distance[at][k]);
        if (!is_one_bundle(hops)) choices_[at] = std::max(choices_[at], static_cast<int64_t>(hops.size()));
        for (const fabric::Hop& hop : hops) add(hop.neighbour);
      }
    }
    int64_t ways = 1;
    for (const int64_t count : choices_) ways = std::min(ways * count, int64_t{1} << 30);
    num_trees_ = std::min(kMostTrees, ways / std::gcd(ways, static_cast<int64_t>(members_.size())));
  }

  bool is_one_bundle(const std::vector<fabric::Hop>& hops) const {
    return std::all_of(hops.begin(), hops.end(),
                       [&](const fabric::Hop& hop) { return engine_link(hop.link) == engine_link(hops[0].link); });
  }

  int32_t engine_link(int32_t link) const { return policy_.links().of_link[static_cast<size_t>(link)]; }

  fabric::Hop next_hop(int32_t vertex, int64_t number) const {
    const std::vector<fabric::Hop> hops = hops_of(vertex);
    const auto at = static_cast<size_t>(distance_.at(vertex));
    for (size_t nearer = 1; nearer < at; ++nearer) number /= choices_[nearer];
    return hops[static_cast<size_t>(number) % hops.size()];
  }

  // The link back from where a hop leads.
  int32_t back(int32_t vertex, const fabric::Hop& hop) const {
    const std::vector<fabric::Link>& links = fabric_.links();
    const fabric::HopSpan ways = fabric_.out(hop.neighbour);
    const auto* found = std::lower_bound(ways.begin(), ways.end(), vertex,
                                         [](const fabric::Hop& one, int32_t to) { return one.neighbour < to; });
    while (found != ways.end() && found->neighbour == vertex) {
      if (links[static_cast<size_t>(found->link)].cable == links[static_cast<size_t>(hop.link)].cable) {
        return found->link;
      }
      ++found;
    }
    ROSTAM_THROW(ConfigError, "link " << hop.link
                                      << " of the fabric leads one way only; switches that reduce need "
                                         "cables of both directions");
  }

  void add_tree(int64_t number, Route& route) {
    poll_();
    std::unordered_map<int32_t, fabric::Hop> next;
    std::vector<int32_t> order;
    for (const int32_t member : members_) {
      SimTime latency;
      for (int32_t vertex = member; vertex != root_;) {
        auto [entry, is_new] = next.try_emplace(vertex);
        if (is_new) {
          entry->second = next_hop(vertex, number);
          order.push_back(vertex);
        }
        const fabric::Hop hop = entry->second;
        latency = latency + fabric_.links()[static_cast<size_t>(hop.link)].latency;
        vertex = hop.neighbour;
        if (vertex != root_) latency = latency + fabric_.forward_latency();
      }
      route.latency = std::max(route.latency, latency);
    }
    std::stable_sort(order.begin(), order.end(),
                     [this](int32_t a, int32_t b) { return distance_.at(a) > distance_.at(b); });
    std::unordered_map<int32_t, double> streams;
    for (const int32_t member : members_) streams[member] = 1;
    std::vector<int32_t> last;  // vertices from which the root is one hop
    for (const int32_t vertex : order) {
      double& own = streams[vertex];
      if (vertex >= fabric_.num_accelerators()) own = std::min(own, 1.0);
      const double out = own;
      const fabric::Hop& hop = next.at(vertex);
      load(hop.link, back(vertex, hop), out);
      if (hop.neighbour == root_) {
        last.push_back(vertex);
        add_owner_streams(out, route.ends[owner_]);
      } else {
        streams[hop.neighbour] += out;
      }
    }
    for (size_t k = 0; k < members_.size(); ++k) {
      if (k != owner_) add_end(route.ends[k], adds(op_) ? 1 : 0, copies(op_) ? 1 : 0);
    }
    // A push's own data and copy are the streams of the last hop.
    if (op_ == SwitchOp::kPush || last.size() != 1 || fabric_.can_forward(root_)) return;
    const fabric::Hop& hop = next.at(last[0]);
    const double up = adds(op_) ? 1 : 0, down = copies(op_) ? 1 : 0;
    add_share(back(last[0], hop), up);
    add_share(hop.link, down);
    add_end(route.ends[owner_], up, down);
  }

  // Streams over a hop towards the root, and copies over the link back.
  void load(int32_t towards, int32_t away, double streams) {
    if (adds(op_)) add_share(towards, streams);
    if (copies(op_)) add_share(away, streams);
  }

  void add_owner_streams(double streams, RouteEnd& owner) const {
    add_end(owner, copies(op_) ? streams : 0, adds(op_) ? streams : 0);
  }

  void add_end(RouteEnd& end, double sent, double received) const {
    const double scale = part_ / static_cast<double>(num_trees_);
    end.sent += sent * scale;
    end.received += received * scale;
  }

  void add_share(int32_t link, double streams) {
    if (streams > 0) shares_[engine_link(link)] += streams * part_ / static_cast<double>(num_trees_);
  }

  const RoutePolicy& policy_;
  const fabric::Fabric& fabric_;
  SwitchOp op_;
  const std::vector<int32_t>& members_;
  size_t owner_;
  int32_t root_;
  double part_ = 1;
  int64_t num_trees_ = 1;
  std::unordered_map<int32_t, int32_t> distance_;
  std::vector<int64_t> choices_;  // by distance
  std::unordered_map<int32_t, double> shares_;
  InterruptPoll poll_;
};

}  // namespace

const char* name_of(SwitchOp op) {
  constexpr const char* kNames[] = {"pull", "push", "reduce", "multicast"};
  return kNames[static_cast<size_t>(op)];
}

Route region_route(const RouteTable& routes, SwitchOp op, const std::vector<int32_t>& members, size_t owner) {
  if (routes.planes().size() > 1) {
    throw ConfigError(
        "switches reduce over planes that are alike only; parts of one plane have failed, or planes differ");
  }
  return RegionRouter(*routes.planes().front().policy, op, members, owner).make();
}

}  // namespace rostam::routing
