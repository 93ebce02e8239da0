#include "circuits/ocs_circuits.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

#include "circuits/edge_colouring.h"
#include "sim/errors.h"
#include "sim/random.h"

namespace rostam::circuits {

namespace {

constexpr int32_t kColouringTries = 8;

// Circuits of one pair while they are counted. Directed: from `a` (sending side) to `b` (receiving side), which
// are vertices src and N + dst. Symmetric: between accelerators a < b, there and back.
struct Edge {
  int32_t a = 0;
  int32_t b = 0;
  double num_bytes = 0;  // 0: kept for relays, never widened
  int32_t count = 0;
};

class OcsAllocator {
 public:
  OcsAllocator(const Demand& demand, const OcsPorts& ports, const std::vector<OcsCircuit>& held)
      : n_(demand.num_accelerators),
        ports_(ports),
        held_(held),
        is_paired_(ports.is_symmetric || ports.is_duplex),
        room_(static_cast<size_t>(is_paired_ ? n_ : 2 * n_), ports.num_ocs) {
    for (size_t i = 0; i < demand.src.size(); ++i) add_pair(demand.src[i], demand.dst[i], demand.num_bytes[i]);
    if (is_paired_) merge_directions();
  }

  OcsCircuits run() {
    const bool may_miss_some = ports_.can_relay || ports_.may_leave_out;
    if (may_miss_some && max_degree().second > ports_.num_ocs) {
      open_largest();
    } else {
      check_degree();
      for (Edge& edge : edges_) {
        if (edge.num_bytes > 0) open(edge);
      }
    }
    widen();
    return ports_.is_duplex ? colour_duplex() : colour_directed();
  }

 private:
  void add_pair(int32_t src, int32_t dst, double num_bytes) {
    if (is_paired_) {
      edges_.push_back({std::min(src, dst), std::max(src, dst), num_bytes, 0});
    } else {
      edges_.push_back({src, n_ + dst, num_bytes, 0});
    }
  }

  // Leaves one edge a pair of accelerators, with the larger of the two demands.
  void merge_directions() {
    std::sort(edges_.begin(), edges_.end(),
              [](const Edge& x, const Edge& y) { return std::tie(x.a, x.b) < std::tie(y.a, y.b); });
    std::vector<Edge> merged;
    for (const Edge& edge : edges_) {
      if (!merged.empty() && merged.back().a == edge.a && merged.back().b == edge.b) {
        merged.back().num_bytes = std::max(merged.back().num_bytes, edge.num_bytes);
      } else {
        merged.push_back(edge);
      }
    }
    edges_ = std::move(merged);
  }

  // The vertex with most peers (the first of equals) and their number.
  std::pair<int32_t, int32_t> max_degree() const {
    std::vector<int32_t> degree(room_.size(), 0);
    for (const Edge& edge : edges_) {
      if (edge.num_bytes <= 0) continue;
      ++degree[static_cast<size_t>(edge.a)];
      ++degree[static_cast<size_t>(edge.b)];
    }
    const auto most = std::max_element(degree.begin(), degree.end());
    if (most == degree.end()) return {0, 0};
    return {static_cast<int32_t>(most - degree.begin()), *most};
  }

  void check_degree() const {
    const auto [vertex, degree] = max_degree();
    if (degree <= ports_.num_ocs) return;
    const char* verb = is_paired_ ? " exchanges data with " : vertex < n_ ? " sends to " : " receives from ";
    ROSTAM_THROW(ConfigError, "accelerator " << vertex % n_ << verb << degree << " peers, but it holds at most "
                                             << ports_.num_ocs
                                             << " circuits, one on each working switch; lower the plan's circuit "
                                                "degree, raise fabric.num_ocs, or set fabric.relay=true");
  }

  bool has_room(const Edge& edge) const {
    return room_[static_cast<size_t>(edge.a)] > 0 && room_[static_cast<size_t>(edge.b)] > 0;
  }

  void open(Edge& edge) {
    ++edge.count;
    --room_[static_cast<size_t>(edge.a)];
    --room_[static_cast<size_t>(edge.b)];
  }

  // After it the largest demands hold one circuit each, as far as ports go, and with relays all others have a chain of
  // circuits unless they may be left out and not even a ring reaches them all.
  void open_largest() {
    std::vector<size_t> order(edges_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    // Equal demands go by a scattered order of their distances: circuits over few distances would leave islands.
    const auto key = [&](size_t i) {
      const int32_t gap = (edges_[i].b % n_ - edges_[i].a + n_) % n_;
      return std::make_tuple(-edges_[i].num_bytes, mix(static_cast<uint64_t>(gap)), edges_[i].a, edges_[i].b);
    };
    std::sort(order.begin(), order.end(), [&](size_t i, size_t j) { return key(i) < key(j); });
    const std::vector<int32_t> all_room = room_;
    open_in(order);
    if (!ports_.can_relay || are_all_reached()) return;
    const std::vector<Edge> largest = edges_;
    const std::vector<int32_t> room_left = room_;
    for (Edge& edge : edges_) edge.count = 0;
    room_ = all_room;
    open_ring();
    open_in(order);
    if (are_all_reached()) return;
    if (!ports_.may_leave_out) {
      ROSTAM_THROW(ConfigError, "fabric.num_ocs leaves " << ports_.num_ocs
                                                         << " circuits an accelerator: too few for relays to reach "
                                                            "every demanded pair; use more switches");
    }
    edges_ = largest;
    room_ = room_left;
  }

  void open_in(const std::vector<size_t>& order) {
    for (const size_t i : order) {
      if (edges_[i].num_bytes > 0 && edges_[i].count == 0 && has_room(edges_[i])) open(edges_[i]);
    }
  }

  // One circuit from every accelerator that the demand names to the next: whatever follows, all can be reached.
  void open_ring() {
    std::vector<int32_t> active;
    for (const Edge& edge : edges_) {
      active.push_back(edge.a);
      active.push_back(edge.b % n_);
    }
    std::sort(active.begin(), active.end());
    active.erase(std::unique(active.begin(), active.end()), active.end());
    const auto demanded_end = static_cast<std::ptrdiff_t>(edges_.size());
    for (size_t i = 0; i < active.size(); ++i) {
      add_pair(active[i], active[(i + 1) % active.size()], 0);
      const auto is_same = [wanted = edges_.back()](const Edge& e) { return e.a == wanted.a && e.b == wanted.b; };
      const auto demanded = std::find_if(edges_.begin(), edges_.begin() + demanded_end, is_same);
      const bool is_demanded = demanded != edges_.begin() + demanded_end;
      Edge& edge = is_demanded ? *demanded : edges_.back();
      if (edge.count == 0 && has_room(edge)) open(edge);
      if (is_demanded) edges_.pop_back();
    }
  }

  bool are_all_reached() const {
    std::vector<std::vector<int32_t>> next(static_cast<size_t>(n_));
    std::vector<std::vector<int32_t>> wanted(static_cast<size_t>(n_));
    for (const Edge& edge : edges_) {
      const int32_t b = edge.b % n_;
      if (edge.count == 0) {
        if (edge.num_bytes > 0) wanted[static_cast<size_t>(edge.a)].push_back(b);
        continue;
      }
      next[static_cast<size_t>(edge.a)].push_back(b);
      if (is_paired_) next[static_cast<size_t>(b)].push_back(edge.a);
    }
    std::vector<int32_t> seen(static_cast<size_t>(n_), -1);
    std::vector<int32_t> queue;
    for (int32_t src = 0; src < n_; ++src) {
      if (wanted[static_cast<size_t>(src)].empty()) continue;
      queue.assign(1, src);
      seen[static_cast<size_t>(src)] = src;
      for (size_t i = 0; i < queue.size(); ++i) {
        for (const int32_t vertex : next[static_cast<size_t>(queue[i])]) {
          if (seen[static_cast<size_t>(vertex)] == src) continue;
          seen[static_cast<size_t>(vertex)] = src;
          queue.push_back(vertex);
        }
      }
      for (const int32_t dst : wanted[static_cast<size_t>(src)]) {
        if (seen[static_cast<size_t>(dst)] != src) return false;
      }
    }
    return true;
  }

  // Adds circuits one by one to the slowest pair that has room; pairs without a circuit (relayed) stay so.
  void widen() {
    using Entry = std::pair<double, size_t>;  // circuits per byte, edge
    std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> slowest;
    const auto push = [&](size_t i) { slowest.push({edges_[i].count / edges_[i].num_bytes, i}); };
    for (size_t i = 0; i < edges_.size(); ++i) {
      if (edges_[i].count > 0 && edges_[i].num_bytes > 0) push(i);
    }
    while (!slowest.empty()) {
      const size_t i = slowest.top().second;
      slowest.pop();
      if (!has_room(edges_[i])) continue;  // room never comes back
      open(edges_[i]);
      push(i);
    }
  }

  // One entry a circuit: the first circuits of all pairs, then the second ones, ...; `first` goes before everybody.
  std::vector<size_t> circuits_in_rounds(const std::vector<size_t>& first) const {
    std::vector<size_t> order = first;
    std::vector<int32_t> left(edges_.size());
    for (size_t i = 0; i < edges_.size(); ++i) left[i] = edges_[i].count;
    for (const size_t i : first) --left[i];
    for (bool is_any_left = true; is_any_left;) {
      is_any_left = false;
      for (size_t i = 0; i < edges_.size(); ++i) {
        if (left[i] <= 0) continue;
        --left[i];
        order.push_back(i);
        is_any_left = true;
      }
    }
    return order;
  }

  std::vector<int32_t> colours_of(const std::vector<size_t>& order, bool is_bipartite) const {
    std::vector<std::pair<int32_t, int32_t>> ends;
    ends.reserve(order.size());
    for (const size_t i : order) ends.emplace_back(edges_[i].a, edges_[i].b);
    const bool has_held = is_bipartite && !held_.empty();
    return colour_edges(is_bipartite ? 2 * n_ : n_, ends, ports_.num_ocs,
                        has_held ? held_colours(order) : std::vector<int32_t>());
  }

  // For each circuit the switch of one of its pair that is set already, each of them once; -1 where none is left.
  std::vector<int32_t> held_colours(const std::vector<size_t>& order) const {
    std::map<std::pair<int32_t, int32_t>, std::vector<int32_t>> switches;
    for (const OcsCircuit& one : held_) switches[{one.src, n_ + one.dst}].push_back(one.ocs);
    std::vector<int32_t> colours;
    colours.reserve(order.size());
    for (const size_t i : order) {
      const auto found = switches.find({edges_[i].a, edges_[i].b});
      const bool is_left = found != switches.end() && !found->second.empty();
      colours.push_back(is_left ? found->second.back() : -1);
      if (is_left) found->second.pop_back();
    }
    return colours;
  }

  // Koenig: sending sides on the left, receiving sides on the right.
  OcsCircuits colour_directed() {
    if (is_paired_) split_directions();
    const std::vector<size_t> order = circuits_in_rounds({});
    return collect(order, colours_of(order, true), 1);
  }

  void split_directions() {
    const size_t num_pairs = edges_.size();
    for (size_t i = 0; i < num_pairs; ++i) {
      edges_.push_back({edges_[i].b, n_ + edges_[i].a, edges_[i].num_bytes, edges_[i].count});
      edges_[i].b += n_;
    }
  }

  // Colours until every pair holds a circuit; pairs that came off with none go first the next time.
  OcsCircuits colour_duplex() const {
    std::vector<size_t> first;
    for (int32_t tries = 0;; ++tries) {
      const std::vector<size_t> order = circuits_in_rounds(first);
      const std::vector<int32_t> colours = colours_of(order, false);
      std::vector<int32_t> coloured(edges_.size(), 0);
      for (size_t i = 0; i < order.size(); ++i) coloured[order[i]] += colours[i] >= 0;
      std::vector<size_t> bare;
      for (size_t i = 0; i < edges_.size(); ++i) {
        if (edges_[i].count > 0 && coloured[i] == 0) bare.push_back(i);
      }
      if (bare.empty()) return collect(order, colours, 2);
      if (tries == kColouringTries) {
        const Edge& edge = edges_[bare.front()];
        ROSTAM_THROW(ConfigError,
                     "fabric.duplex is true, and no switch is left for both directions between accelerators "
                         << edge.a << " and " << edge.b << "; set fabric.duplex=false");
      }
      std::vector<size_t> again = bare;
      for (const size_t i : first) {
        if (std::find(again.begin(), again.end(), i) == again.end()) again.push_back(i);
      }
      first = std::move(again);
    }
  }

  // Lists pairs by (src, dst) and their circuits by pair. `num_directions` is 2 where one colour serves both.
  OcsCircuits collect(const std::vector<size_t>& order, const std::vector<int32_t>& colours,
                      int32_t num_directions) const {
    std::vector<std::tuple<int32_t, int32_t, int32_t>> circuits;  // src, dst, switch
    OcsCircuits result;
    for (size_t i = 0; i < order.size(); ++i) {
      const int32_t a = edges_[order[i]].a;
      const int32_t b = edges_[order[i]].b % n_;
      if (colours[i] < 0) {
        result.colouring_gap += num_directions;
        continue;
      }
      circuits.emplace_back(a, b, colours[i]);
      if (num_directions == 2) circuits.emplace_back(b, a, colours[i]);
    }
    std::sort(circuits.begin(), circuits.end());
    for (const auto& [src, dst, ocs] : circuits) {
      if (result.src.empty() || result.src.back() != src || result.dst.back() != dst) {
        result.src.push_back(src);
        result.dst.push_back(dst);
        result.count.push_back(0);
      }
      ++result.count.back();
      result.circuit_pair.push_back(static_cast<int32_t>(result.src.size()) - 1);
      result.circuit_ocs.push_back(ocs);
    }
    return result;
  }

  int32_t n_;
  OcsPorts ports_;
  const std::vector<OcsCircuit>& held_;
  bool is_paired_;
  std::vector<Edge> edges_;
  std::vector<int32_t> room_;  // circuits that a vertex can still hold
};

// On every switch an accelerator sends on, and receives on, at most one circuit; nothing else is a legal setting.
void check_switches(const OcsCircuits& circuits, int32_t num_accelerators, const OcsPorts& ports) {
  const size_t num_ports = static_cast<size_t>(num_accelerators) * static_cast<size_t>(ports.num_ocs);
  std::vector<uint8_t> sends(num_ports, 0);
  std::vector<uint8_t> receives(num_ports, 0);
  for (size_t i = 0; i < circuits.circuit_pair.size(); ++i) {
    const size_t pair = static_cast<size_t>(circuits.circuit_pair[i]);
    const size_t ocs = static_cast<size_t>(circuits.circuit_ocs[i]);
    const size_t src = static_cast<size_t>(circuits.src[pair]) * static_cast<size_t>(ports.num_ocs) + ocs;
    const size_t dst = static_cast<size_t>(circuits.dst[pair]) * static_cast<size_t>(ports.num_ocs) + ocs;
    ROSTAM_CHECK(!sends[src]++ && !receives[dst]++, "switch " << ocs << " joins accelerator " << circuits.src[pair]
                                                              << " or " << circuits.dst[pair] << " twice");
  }
  ROSTAM_CHECK(ports.is_duplex || circuits.colouring_gap == 0,
               circuits.colouring_gap << " circuits found no switch in a bipartite graph");
}

}  // namespace

OcsCircuits set_ocs_circuits(const Demand& demand, const OcsPorts& ports, const std::vector<OcsCircuit>& held) {
  OcsCircuits circuits = OcsAllocator(demand, ports, held).run();
  check_switches(circuits, demand.num_accelerators, ports);
  return circuits;
}

}  // namespace rostam::circuits
