// layers routing: an equal share of every message on each of its layers (layers.h): packets go round the layers, as
// messages of InfiniBand round the addresses of their destination. Phases count the switches passed, up to the last
// virtual channel. Layer 0 alone would be one path of minimal routing.
#include "routing/layers.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>

#include "routing/registry.h"
#include "sim/interrupt.h"
#include "sim/random.h"

namespace rostam::routing {

namespace {

constexpr uint64_t kSeed = 1;
constexpr int32_t kMaxSwitches = 4096;      // tables and loads take 32 bytes for each pair of them
constexpr int32_t kMaxSearchSteps = 20000;  // of one path; fabrics with many equal ones take the best of the first
constexpr int64_t kSpoilt =
    6;  // paths that one such switch outweighs: own; more gives more disjoint paths, less balance
constexpr int32_t kMostDetour = 3;  // neighbours of a graph of girth five have no other path of less than four cables
constexpr double kFewBranching = 0.25;  // with more pairs of several minimal paths layers are the wrong routing
constexpr double kRounding = 1e-12;     // sums of n-ths that should make 1 differ from it by rounding alone

// Drawn from the seed: switches in the order of mixed numbers.
std::vector<int32_t> drawn_order(int32_t count, uint64_t seed) {
  std::vector<int32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [seed](int32_t a, int32_t b) {
    const uint64_t of_a = mix(seed ^ mix(static_cast<uint64_t>(a))), of_b = mix(seed ^ mix(static_cast<uint64_t>(b)));
    return of_a != of_b ? of_a < of_b : a < b;
  });
  return order;
}

}  // namespace

Layers::Layers(const fabric::Fabric& fabric, int32_t num_layers) {
  for (int32_t v = 0; v < fabric.num_vertices(); ++v) {
    switch_of_.push_back(fabric.can_forward(v) ? num_switches_++ : -1);
    if (fabric.can_forward(v)) vertices_.push_back(v);
  }
  if (num_switches_ > kMaxSwitches) {
    ROSTAM_THROW(ConfigError, "routing layers has tables for up to " << kMaxSwitches << " switches; fabric "
                                                                     << fabric.name() << " has " << num_switches_
                                                                     << " that forward");
  }
  const auto count = static_cast<size_t>(num_switches_);
  loads_.assign(count * count, 0);
  find_neighbours(fabric);
  fill_minimal();
  const std::vector<int32_t> pairs = drawn_order(num_switches_ * num_switches_, kSeed);
  for (int32_t layer = 1; layer < num_layers; ++layer) {
    tables_.emplace_back(count * count, -1);
    fill_layer(static_cast<size_t>(layer), pairs);
  }
}

void Layers::find_neighbours(const fabric::Fabric& fabric) {
  for (int32_t s = 0; s < num_switches_; ++s) {
    neighbours_.push_back(switches_at(fabric.out(vertex_of(s))));
    feeders_.push_back(switches_at(fabric.in(vertex_of(s))));
  }
}

std::vector<int32_t> Layers::switches_at(const fabric::HopSpan& hops) const {
  std::vector<int32_t> found;
  for (const fabric::Hop& hop : hops) {  // sorted by neighbour
    const int32_t there = switch_of(hop.neighbour);
    if (there >= 0 && (found.empty() || found.back() != there)) found.push_back(there);
  }
  return found;
}

// Layer 0: of the minimal next hops towards a destination the one that carries the fewest paths so far.
void Layers::fill_minimal() {
  const auto count = static_cast<size_t>(num_switches_);
  hops_.assign(count * count, -1);
  tables_.emplace_back(count * count, -1);
  for (const int32_t to : drawn_order(num_switches_, kSeed)) {
    poll_interrupt();
    std::vector<int32_t> queue{to};
    hops_[index(to, to)] = 0;
    // Breadth first from the destination against the way of the links: circuits and failures may be of one direction.
    for (size_t k = 0; k < queue.size(); ++k) {
      for (const int32_t near : feeders_[static_cast<size_t>(queue[k])]) {
        if (hops_[index(near, to)] >= 0) continue;
        hops_[index(near, to)] = hops_[index(queue[k], to)] + 1;
        queue.push_back(near);
      }
    }
    for (const int32_t at : queue) {
      if (at == to) continue;
      int32_t& next = tables_[0][index(at, to)];
      for (const int32_t near : neighbours_[static_cast<size_t>(at)]) {
        if (hops_[index(near, to)] != hops_[index(at, to)] - 1) continue;
        if (next < 0 || load(at, near) < load(at, next)) next = near;
      }
    }
    for (const int32_t at : queue) {
      for (int32_t here = at; here != to; here = next(0, here, to)) ++load(here, next(0, here, to));
    }
  }
}

void Layers::fill_layer(size_t layer, const std::vector<int32_t>& order) {
  std::vector<int32_t>& table = tables_[layer];
  for (const int32_t pair : order) {
    const int32_t from = pair / num_switches_, to = pair % num_switches_;
    const int32_t minimal = hops_[index(from, to)];
    if (minimal <= 0 || table[index(from, to)] >= 0) continue;  // it lies on another pair's path
    for (int32_t more = 1; more <= kMostDetour && !place_path(table, from, to, minimal + more);) ++more;
  }
  for (size_t k = 0; k < table.size(); ++k) {
    if (table[k] < 0) table[k] = tables_[0][k];
  }
}

bool Layers::place_path(std::vector<int32_t>& table, int32_t from, int32_t to, int32_t length) {
  poll_interrupt();
  path_.assign(1, from);
  best_.clear();
  steps_left_ = kMaxSearchSteps;
  search(table, to, length, 0);
  for (size_t k = 0; k + 1 < best_.size(); ++k) {
    table[index(best_[k], to)] = best_[k + 1];
    ++load(best_[k], best_[k + 1]);
  }
  return !best_.empty();
}

// Extends path_ by paths of `left` more cables to `to` that agree with the table; the lightest is kept in best_.
void Layers::search(const std::vector<int32_t>& table, int32_t to, int32_t left, int64_t weight) {
  const int32_t here = path_.back();
  if (--steps_left_ < 0 || (!best_.empty() && weight >= best_weight_)) return;
  if (here == to) {
    if (left == 0) {
      best_ = path_;
      best_weight_ = weight;
    }
    return;
  }
  const int32_t fixed = table[index(here, to)];
  // The path would give a switch on it its minimal path, which it then keeps in this layer.
  const bool is_spoilt = fixed < 0 && path_.size() > 1 && left == hops(here, to);
  for (const int32_t near : neighbours_[static_cast<size_t>(here)]) {
    const int32_t far = hops_[index(near, to)];
    if ((fixed >= 0 && near != fixed) || far < 0 || far > left - 1) continue;
    if (std::find(path_.begin(), path_.end(), near) != path_.end()) continue;
    path_.push_back(near);
    search(table, to, left - 1, weight + load(here, near) + (is_spoilt ? kSpoilt : 0));
    path_.pop_back();
  }
}

double Layers::share_of_branching_pairs(const std::vector<int32_t>& ends) const {
  int64_t num_pairs = 0, num_branching = 0;
  for (const int32_t from : ends) {
    poll_interrupt();
    for (const int32_t to : ends) {
      const int32_t far = hops(from, to);
      if (far <= 0) continue;
      const std::vector<int32_t>& near = neighbours_[static_cast<size_t>(from)];
      const auto nearer = std::count_if(near.begin(), near.end(), [&](int32_t at) { return hops(at, to) == far - 1; });
      ++num_pairs;
      if (nearer > 1) ++num_branching;
    }
  }
  return num_pairs == 0 ? 0 : static_cast<double>(num_branching) / static_cast<double>(num_pairs);
}

int32_t Layers::longest_path() const {
  int32_t longest = 0;
  for (int32_t layer = 0; layer < num_layers(); ++layer) {
    for (int32_t from = 0; from < num_switches_; ++from) {
      poll_interrupt();
      for (int32_t to = 0; to < num_switches_; ++to) {
        int32_t cables = 0;
        for (int32_t at = from; at != to && at >= 0; at = next(layer, at, to)) ++cables;
        longest = std::max(longest, cables);
      }
    }
  }
  return longest;
}

std::vector<int32_t> Layers::flat() const {
  std::vector<int32_t> all;
  for (const std::vector<int32_t>& table : tables_) all.insert(all.end(), table.begin(), table.end());
  return all;
}

namespace {

class LayersPolicy : public RoutePolicy {
 public:
  LayersPolicy(std::shared_ptr<const fabric::Fabric> fabric, const PolicyOptions& options)
      : links_(*fabric, false),
        overhead_(options.message_overhead),
        minimal_(make_spray_policy(fabric, {SimTime::zero(), false})),
        layers_(*fabric, options.number),
        fabric_(std::move(fabric)),
        share_of_(links_.capacities.size(), 0.0) {}

  Route route(int32_t src, int32_t dst, const RouteQuery& query) const override {
    ROSTAM_CHECK(src != dst, "route from accelerator " << src << " to itself");
    const int32_t count = fabric_->num_accelerators();
    const bool is_pair = src >= 0 && src < count && dst >= 0 && dst < count;
    const auto [first, last] = is_pair ? nearest(src, dst) : std::pair<int32_t, int32_t>(-1, -1);
    Route route;
    if (first < 0) {
      route = minimal_->route(src, dst, query);  // over a link of the two alone, or it says what is missing
    } else {
      used_.clear();
      for (int32_t layer = 0; layer < layers_.num_layers(); ++layer)
        add_layer(layer, src, first, last, dst, query, route);
      for (const int32_t link : used_) {
        const double share = std::exchange(share_of_[static_cast<size_t>(link)], 0.0);
        route.links.push_back({link, std::abs(share - 1) < kRounding ? 1 : share});
      }
    }
    route.src = src;
    route.dst = dst;
    route.latency += overhead_;
    return route;
  }

  bool is_hash_free() const override { return true; }
  const fabric::Fabric& fabric() const override { return *fabric_; }
  const EngineLinks& links() const override { return links_; }
  int32_t num_virtual_channels() const override { return std::max(1, layers_.longest_path()); }
  bool has_same_channels_after_failures() const override { return false; }

  // Layers are for pairs with a single minimal path; where there are more, all layers but one are detours.
  std::string note() const override {
    if (layers_.num_layers() == 1) return {};
    std::vector<int32_t> ends;
    for (int32_t a = 0; a < fabric_->num_accelerators(); ++a) {
      for (const int32_t door : doors(a, fabric_->out(a))) ends.push_back(door);
    }
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    const double share = layers_.share_of_branching_pairs(ends);
    if (share <= kFewBranching) return {};
    std::ostringstream text;
    text << std::lround(100 * share) << "% of the switch pairs of fabric " << fabric_->name()
         << " have several minimal paths, of which routing layers takes one and " << layers_.num_layers() - 1
         << " detours: spray takes all minimal ones";
    return text.str();
  }

 private:
  // Switches that an accelerator may enter the network at, or be reached from: itself, or its neighbours.
  std::vector<int32_t> doors(int32_t accelerator, const fabric::HopSpan& hops) const {
    if (fabric_->can_forward(accelerator)) return {layers_.switch_of(accelerator)};
    return layers_.switches_at(hops);
  }

  // The doors of both that are nearest to each other, the lowest ones; -1 where the two are joined by a link alone.
  std::pair<int32_t, int32_t> nearest(int32_t src, int32_t dst) const {
    std::pair<int32_t, int32_t> best{-1, -1};
    int32_t least = fabric::kUnreachable;
    for (const int32_t from : doors(src, fabric_->out(src))) {
      for (const int32_t to : doors(dst, fabric_->in(dst))) {
        const int32_t hops = layers_.hops(from, to);
        if (hops < 0 || hops >= least) continue;
        least = hops;
        best = {from, to};
      }
    }
    return best;
  }

  void add_layer(int32_t layer, int32_t src, int32_t first, int32_t last, int32_t dst, const RouteQuery& query,
                 Route& route) const {
    std::vector<int32_t> way;
    if (src != layers_.vertex_of(first)) way.push_back(src);
    for (int32_t at = first; at >= 0; at = at == last ? -1 : layers_.next(layer, at, last)) {
      way.push_back(layers_.vertex_of(at));
    }
    if (dst != layers_.vertex_of(last)) way.push_back(dst);
    SimTime latency;
    int32_t phase = 0;
    if (query.wants_steps) route.steps.nodes.push_back({src, 0, 0, 0});
    for (size_t k = 0; k + 1 < way.size(); ++k) {
      SimTime slowest;
      const bool is_between = layers_.switch_of(way[k]) >= 0 && layers_.switch_of(way[k + 1]) >= 0;
      if (is_between) ++phase;
      const auto first_hop = static_cast<uint32_t>(route.steps.hops.size());
      const auto node = static_cast<uint32_t>(route.steps.nodes.size());
      const std::vector<int32_t> cables = links_between(way[k], way[k + 1]);
      for (const int32_t link : cables) {
        take(links_.of_link[static_cast<size_t>(link)],
             1.0 / (layers_.num_layers() * static_cast<double>(cables.size())));
        slowest = std::max(slowest, fabric_->links()[static_cast<size_t>(link)].latency);
        if (query.wants_steps) {
          const int32_t channel = query.for_packets ? std::max(0, phase - 1) : phase;
          route.steps.hops.push_back({links_.of_link[static_cast<size_t>(link)], node, channel});
        }
      }
      latency += slowest;
      if (k + 2 < way.size()) latency += fabric_->forward_latency();
      if (!query.wants_steps) continue;
      const auto end = static_cast<uint32_t>(route.steps.hops.size());
      route.steps.nodes.back().first_hop = first_hop;
      route.steps.nodes.back().end_hop = end;
      route.steps.nodes.push_back({way[k + 1], phase, end, end});
    }
    route.latency = std::max(route.latency, latency);
  }

  std::vector<int32_t> links_between(int32_t from, int32_t to) const {
    std::vector<int32_t> found;
    for (const fabric::Hop& hop : fabric_->out(from)) {
      if (hop.neighbour == to) found.push_back(hop.link);
    }
    return found;
  }

  void take(int32_t link, double share) const {
    double& sum = share_of_[static_cast<size_t>(link)];
    if (sum == 0) used_.push_back(link);
    sum += share;
  }

  EngineLinks links_;
  SimTime overhead_;
  std::unique_ptr<RoutePolicy> minimal_;
  Layers layers_;
  std::shared_ptr<const fabric::Fabric> fabric_;
  mutable std::vector<double> share_of_;  // engine link -> share, zero between calls
  mutable std::vector<int32_t> used_;
};

}  // namespace

std::unique_ptr<RoutePolicy> make_layers_policy(std::shared_ptr<const fabric::Fabric> fabric,
                                                const PolicyOptions& options) {
  return std::make_unique<LayersPolicy>(std::move(fabric), options);
}

}  // namespace rostam::routing
