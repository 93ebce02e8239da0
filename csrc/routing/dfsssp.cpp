// dfsssp routing: one balanced shortest path for each pair by destination-based tables, in the virtual layer that keeps
// it free of deadlock on any fabric (dfsssp.h); steps take the layer as their virtual channel.
#include "routing/dfsssp.h"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>

#include "routing/registry.h"
#include "sim/interrupt.h"

namespace rostam::routing {

namespace {

constexpr size_t kMaxEntries = size_t{1} << 26;    // of tables: 256 MB
constexpr size_t kMaxPathLinks = size_t{1} << 26;  // on all paths together, where they are given layers
constexpr int32_t kNone = -1;

// The paths of one layer and their channel dependencies, from which paths are taken until there is no circle.
class LayerGraph {
 public:
  LayerGraph(const std::vector<std::vector<int32_t>>& paths, size_t num_links) : paths_(paths), out_(num_links) {}

  void add(int32_t path) {
    poll_();
    const std::vector<int32_t>& links = paths_[static_cast<size_t>(path)];
    for (size_t k = 0; k + 1 < links.size(); ++k) {
      Dependency& found = dependencies_[edge(links[k], links[k + 1])];
      ++found.count;
      found.paths.push_back(path);
      if (found.paths.size() == 1) out_[static_cast<size_t>(links[k])].push_back(links[k + 1]);
    }
  }

  // Takes the fewest paths that it finds out of circles; returns them. A link whose search is through stays so: taking
  // paths away closes no circle.
  std::vector<int32_t> break_circles(std::vector<uint8_t>& is_taken) {
    std::vector<int32_t> taken;
    state_.assign(out_.size(), kNew);
    for (size_t start = 0; start < out_.size(); ++start) {
      while (state_[start] == kNew) {
        const std::vector<int32_t> circle = search(static_cast<int32_t>(start));
        if (!circle.empty()) take_weakest(circle, is_taken, taken);
      }
    }
    return taken;
  }

 private:
  enum State : uint8_t { kNew, kOpen, kDone };
  struct Dependency {
    int32_t count = 0;  // paths with it that are left
    std::vector<int32_t> paths;
  };

  static uint64_t edge(int32_t from, int32_t to) {
    return static_cast<uint64_t>(static_cast<uint32_t>(from)) << 32 | static_cast<uint32_t>(to);
  }

  // The links of a circle that is reached from `start`, none: all that is reached is done.
  std::vector<int32_t> search(int32_t start) {
    struct Frame {
      int32_t link;
      size_t next;
    };
    std::vector<Frame> stack{{start, 0}};
    state_[static_cast<size_t>(start)] = kOpen;
    while (!stack.empty()) {
      poll_();
      Frame& top = stack.back();
      const std::vector<int32_t>& out = out_[static_cast<size_t>(top.link)];
      if (top.next == out.size()) {
        state_[static_cast<size_t>(top.link)] = kDone;
        stack.pop_back();
        continue;
      }
      const int32_t from = top.link, there = out[top.next++];
      if (state_[static_cast<size_t>(there)] == kDone || dependencies_.at(edge(from, there)).count == 0) continue;
      if (state_[static_cast<size_t>(there)] == kNew) {
        state_[static_cast<size_t>(there)] = kOpen;
        stack.push_back({there, 0});
        continue;
      }
      std::vector<int32_t> circle;
      bool is_inside = false;
      for (const Frame& frame : stack) {
        is_inside = is_inside || frame.link == there;
        if (is_inside) circle.push_back(frame.link);
        state_[static_cast<size_t>(frame.link)] = kNew;
      }
      return circle;
    }
    return {};
  }

  void take_weakest(const std::vector<int32_t>& circle, std::vector<uint8_t>& is_taken, std::vector<int32_t>& taken) {
    const Dependency* weakest = nullptr;
    for (size_t k = 0; k < circle.size(); ++k) {
      const Dependency& one = dependencies_.at(edge(circle[k], circle[(k + 1) % circle.size()]));
      if (weakest == nullptr || one.count < weakest->count) weakest = &one;
    }
    const std::vector<int32_t> paths = weakest->paths;
    for (const int32_t path : paths) {
      poll_();
      if (std::exchange(is_taken[static_cast<size_t>(path)], uint8_t{1}) != 0) continue;
      taken.push_back(path);
      const std::vector<int32_t>& links = paths_[static_cast<size_t>(path)];
      for (size_t k = 0; k + 1 < links.size(); ++k) --dependencies_.at(edge(links[k], links[k + 1])).count;
    }
  }

  const std::vector<std::vector<int32_t>>& paths_;
  std::vector<std::vector<int32_t>> out_;
  std::unordered_map<uint64_t, Dependency> dependencies_;
  std::vector<uint8_t> state_;
  InterruptPoll poll_;
};

}  // namespace

Dfsssp::Dfsssp(const fabric::Fabric& fabric) : fabric_(fabric), num_accelerators_(fabric.num_accelerators()) {
  const size_t entries = static_cast<size_t>(fabric.num_vertices()) * static_cast<size_t>(num_accelerators_);
  if (entries > kMaxEntries) {
    ROSTAM_THROW(ConfigError, "routing dfsssp has tables of up to " << kMaxEntries << " entries; fabric "
                                                                    << fabric.name() << " needs " << entries
                                                                    << ", accelerators x vertices");
  }
  table_.assign(entries, kNone);
  std::vector<int64_t> loads(fabric.links().size(), 0);
  for (int32_t dst = 0; dst < num_accelerators_; ++dst) {
    if (!fabric.is_vertex_failed(dst)) serve(dst, loads);
  }
}

// Of the shortest paths from every vertex the one with the fewest paths on its links so far, each link counted once.
void Dfsssp::serve(int32_t dst, std::vector<int64_t>& loads) {
  const std::vector<int32_t> hops = fabric_.search_distances(dst, nullptr);
  std::vector<std::vector<int32_t>> levels(1);
  for (int32_t v = 0; v < fabric_.num_vertices(); ++v) {
    const int32_t far = hops[static_cast<size_t>(v)];
    if (far >= fabric::kUnreachable || fabric_.is_vertex_failed(v)) continue;
    if (levels.size() <= static_cast<size_t>(far)) levels.resize(static_cast<size_t>(far) + 1);
    levels[static_cast<size_t>(far)].push_back(v);
  }
  std::vector<int64_t> weight(hops.size(), 0), paths(hops.size(), 0);
  for (size_t far = 1; far < levels.size(); ++far) {
    for (const int32_t v : levels[far]) {
      int32_t& next = table_[index(v, dst)];
      for (const fabric::Hop& hop : fabric_.out(v)) {
        const auto near = static_cast<size_t>(hop.neighbour);
        if (hops[near] != static_cast<int32_t>(far) - 1 ||
            (hop.neighbour != dst && !fabric_.can_forward(hop.neighbour)))
          continue;
        const int64_t cost = loads[static_cast<size_t>(hop.link)] + weight[near];
        if (next != kNone && cost >= weight[static_cast<size_t>(v)]) continue;
        next = hop.link;
        weight[static_cast<size_t>(v)] = cost;
      }
      if (v < num_accelerators_) paths[static_cast<size_t>(v)] = 1;
    }
  }
  for (size_t far = levels.size(); far-- > 1;) {
    for (const int32_t v : levels[far]) {
      const int32_t link = next(v, dst);
      if (link == kNone) continue;
      loads[static_cast<size_t>(link)] += paths[static_cast<size_t>(v)];
      paths[static_cast<size_t>(fabric_.links()[static_cast<size_t>(link)].dst)] += paths[static_cast<size_t>(v)];
    }
  }
}

void Dfsssp::assign_layers() {
  if (num_layers_ > 0) return;
  layer_.assign(table_.size(), 0);
  std::vector<std::vector<int32_t>> paths;
  std::vector<size_t> slots;  // of layer_
  size_t total = 0;
  // An accelerator that forwards nothing is an end of paths alone: its links are in no circle.
  for (int32_t dst = 0; dst < num_accelerators_; ++dst) {
    poll_interrupt();
    std::vector<int32_t> entries;
    for (int32_t src = 0; src < num_accelerators_; ++src) {
      if (src == dst || next(src, dst) == kNone) continue;
      const int32_t first = fabric_.links()[static_cast<size_t>(next(src, dst))].dst;
      entries.push_back(fabric_.can_forward(src) ? src : first);
    }
    std::sort(entries.begin(), entries.end());
    entries.erase(std::unique(entries.begin(), entries.end()), entries.end());
    for (const int32_t entry : entries) {
      std::vector<int32_t> links;
      for (int32_t at = entry; at != dst;) {
        const int32_t link = next(at, dst);
        at = fabric_.links()[static_cast<size_t>(link)].dst;
        if (at != dst || fabric_.can_forward(dst)) links.push_back(link);
      }
      if (links.size() < 2) continue;
      total += links.size();
      slots.push_back(index(entry, dst));
      paths.push_back(std::move(links));
    }
    if (total > kMaxPathLinks) {
      ROSTAM_THROW(ConfigError, "routing dfsssp gives layers to paths of up to "
                                    << kMaxPathLinks << " links in all; fabric " << fabric_.name() << " has more");
    }
  }
  std::vector<int32_t> left(paths.size());
  for (size_t p = 0; p < paths.size(); ++p) left[p] = static_cast<int32_t>(p);
  int32_t num_layers = 0;  // known to others once all are there: an interruption leaves none
  do {
    LayerGraph graph(paths, fabric_.links().size());
    std::vector<uint8_t> is_taken(paths.size(), 0);
    for (const int32_t path : left) {
      graph.add(path);
      layer_[slots[static_cast<size_t>(path)]] = static_cast<int16_t>(num_layers);
    }
    left = graph.break_circles(is_taken);
    ++num_layers;
  } while (!left.empty());
  num_layers_ = num_layers;
}

namespace {

class DfssspPolicy : public RoutePolicy {
 public:
  DfssspPolicy(std::shared_ptr<const fabric::Fabric> fabric, const PolicyOptions& options)
      : links_(*fabric, false),
        overhead_(options.message_overhead),
        minimal_(make_spray_policy(fabric, {SimTime::zero(), false})),
        fabric_(std::move(fabric)),
        tables_(*fabric_) {}

  Route route(int32_t src, int32_t dst, const RouteQuery& query) const override {
    ROSTAM_CHECK(src != dst, "route from accelerator " << src << " to itself");
    const int32_t count = fabric_->num_accelerators();
    const bool is_pair = src >= 0 && src < count && dst >= 0 && dst < count;
    if (!is_pair || tables_.next(src, dst) == kNone || fabric_->is_vertex_failed(src)) {
      minimal_->route(src, dst, {});  // says which is missing, or cut off
      ROSTAM_CHECK(false, "no entry from accelerator " << src << " to " << dst);
    }
    Route route;
    route.src = src;
    route.dst = dst;
    route.latency = overhead_;
    const int32_t layer = query.wants_steps ? layer_of(src, dst) : 0;
    if (query.wants_steps) route.steps.nodes.push_back({src, layer, 0, 0});
    for (int32_t at = src; at != dst;) {
      const auto link = static_cast<size_t>(tables_.next(at, dst));
      at = fabric_->links()[link].dst;
      route.links.push_back({links_.of_link[link], 1.0});
      route.latency += fabric_->links()[link].latency;
      if (at != dst) route.latency += fabric_->forward_latency();
      if (query.wants_steps) add_step(route, at, layer);
    }
    return route;
  }

  bool is_hash_free() const override { return true; }
  const fabric::Fabric& fabric() const override { return *fabric_; }
  const EngineLinks& links() const override { return links_; }
  int32_t num_virtual_channels() const override {
    tables_.assign_layers();
    return tables_.num_layers();
  }
  bool has_same_channels_after_failures() const override { return false; }

 private:
  int32_t layer_of(int32_t src, int32_t dst) const {
    tables_.assign_layers();
    const int32_t first = fabric_->links()[static_cast<size_t>(tables_.next(src, dst))].dst;
    const int32_t entry = fabric_->can_forward(src) ? src : first;
    return entry == dst ? 0 : tables_.layer(entry, dst);
  }

  static void add_step(Route& route, int32_t vertex, int32_t layer) {
    Steps& steps = route.steps;
    const auto first = static_cast<uint32_t>(steps.hops.size());
    steps.nodes.back().first_hop = first;
    steps.nodes.back().end_hop = first + 1;
    steps.hops.push_back({route.links.back().link, static_cast<uint32_t>(steps.nodes.size()), layer});
    steps.nodes.push_back({vertex, layer, first + 1, first + 1});
  }

  EngineLinks links_;
  SimTime overhead_;
  std::unique_ptr<RoutePolicy> minimal_;
  std::shared_ptr<const fabric::Fabric> fabric_;
  mutable Dfsssp tables_;  // layers are assigned once steps are asked for
};

}  // namespace

std::unique_ptr<RoutePolicy> make_dfsssp_policy(std::shared_ptr<const fabric::Fabric> fabric,
                                                const PolicyOptions& options) {
  return std::make_unique<DfssspPolicy>(std::move(fabric), options);
}

}  // namespace rostam::routing
