#include "circuits/ocs_circuits.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

#include "circuits/edge_colouring.h"
#include "circuits/relay_loads.h"
#include "circuits/relay_search.h"
#include "sim/errors.h"
#include "sim/interrupt.h"
#include "sim/random.h"

namespace rostam::circuits {

namespace {

constexpr int32_t kColouringTries = 8;
// Shares of the largest demands that are tried with circuits of their own where others are relayed: as many as take so
// many steps over circuits, of what is set before a run and of what is set within it.
constexpr int64_t kMaxRelaySteps = 100000000, kMaxRelayStepsAgain = 20000000;
// Demands that are so much smaller than the one before begin another share.
constexpr double kDrop = 0.7;

// Circuits of one pair while they are counted. Directed: from `a` (sending side) to `b` (receiving side), which
// are vertices src and N + dst. Symmetric: between accelerators a < b, there and back.
struct Edge {
  int32_t a = 0;
  int32_t b = 0;
  double num_bytes = 0;  // 0: kept for relays
  int32_t count = 0;
  double load = 0;  // bytes over its circuits, those of relayed pairs included
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
    if (ports.can_relay) demand_ = demand;
  }

  OcsCircuits run() {
    if (!ports_.can_relay || !open_with_relays()) {
      if (ports_.can_relay && !ports_.may_leave_out) throw_unreached();
      if (ports_.may_leave_out && max_degree().second > ports_.num_ocs) {
        open_in(largest_first(), edges_.size());
      } else {
        check_degree();
        for (Edge& edge : edges_) {
          if (edge.num_bytes > 0) open(edge);
        }
      }
      for (Edge& edge : edges_) edge.load = edge.count > 0 ? edge.num_bytes : 0;
      widen();
    }
    return ports_.is_duplex ? colour_duplex() : colour_directed();
  }

 private:
  void add_pair(int32_t src, int32_t dst, double num_bytes) {
    if (is_paired_) {
      edges_.push_back({std::min(src, dst), std::max(src, dst), num_bytes, 0, 0});
    } else {
      edges_.push_back({src, n_ + dst, num_bytes, 0, 0});
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

  std::vector<size_t> largest_first() const {
    std::vector<size_t> order(edges_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    // Equal demands go by a scattered order of their distances: circuits over few distances would leave islands.
    const auto key = [&](size_t i) {
      const int32_t gap = (edges_[i].b % n_ - edges_[i].a + n_) % n_;
      return std::make_tuple(-edges_[i].num_bytes, mix(static_cast<uint64_t>(gap)), edges_[i].a, edges_[i].b);
    };
    std::sort(order.begin(), order.end(), [&](size_t i, size_t j) { return key(i) < key(j); });
    return order;
  }

  // Gives so many of the largest demands a circuit each, as far as ports go, for several such numbers, and all others
  // the chains that these leave, by way of a ring round all where there are none; the busiest circuit decides which
  // number stays. Returns false, and changes nothing, if no number reaches all.
  bool open_with_relays() {
    const std::vector<size_t> order = largest_first();
    const std::vector<Edge> none_open = edges_;
    const std::vector<int32_t> all_room = room_;
    std::vector<Edge> best;
    double least = std::numeric_limits<double>::infinity();
    for (const size_t num_direct : numbers_to_try(order)) {
      for (const bool has_ring : {false, true}) {
        edges_ = none_open;
        room_ = all_room;
        if (has_ring) open_ring();
        open_in(order, num_direct);
        if (!load()) continue;
        widen();
        if (const double slowest = busiest_circuit(); slowest < least) {
          least = slowest;
          best = edges_;
        }
        break;
      }
    }
    edges_ = best.empty() ? none_open : std::move(best);
    room_ = all_room;
    const bool is_found = edges_.empty() || least < std::numeric_limits<double>::infinity();
    if (is_found && !is_paired_ && !ports_.may_leave_out) move_circuits();
    return is_found;
  }

  // Of directed circuits that are set before a run: the best way to share out ports may join pairs that demand nothing.
  void move_circuits() {
    std::vector<std::pair<int32_t, int32_t>> circuits;
    for (const Edge& edge : edges_)
      circuits.insert(circuits.end(), static_cast<size_t>(edge.count), {edge.a, edge.b % n_});
    circuits = improve_relays(demand_, std::move(circuits), kMaxRelaySteps, 0);
    for (Edge& edge : edges_) edge.count = 0;
    std::sort(circuits.begin(), circuits.end());
    InterruptPoll poll;
    for (const auto& [src, dst] : circuits) {
      poll();
      const auto is_it = [&, a = src, b = n_ + dst](const Edge& edge) { return edge.a == a && edge.b == b; };
      auto found = std::find_if(edges_.begin(), edges_.end(), is_it);
      if (found == edges_.end()) {
        add_pair(src, dst, 0);
        found = edges_.end() - 1;
      }
      ++found->count;
    }
  }

  // All of them first, then those before demands that are much smaller, and halves, as time allows.
  std::vector<size_t> numbers_to_try(const std::vector<size_t>& order) const {
    const int64_t steps = int64_t{n_} * n_ * ports_.num_ocs;
    const int64_t most = (ports_.may_leave_out ? kMaxRelayStepsAgain : kMaxRelaySteps) / std::max(steps, int64_t{1});
    const auto has_none = [&](size_t i) { return edges_[i].num_bytes <= 0; };
    const auto num_demanded = static_cast<size_t>(std::find_if(order.begin(), order.end(), has_none) - order.begin());
    std::vector<size_t> numbers = {num_demanded};
    for (size_t i = 1; i < num_demanded; ++i) {
      if (edges_[order[i]].num_bytes < kDrop * edges_[order[i - 1]].num_bytes) numbers.push_back(i);
    }
    for (size_t half = num_demanded / 2; half > 0; half /= 2) numbers.push_back(half);
    numbers.push_back(0);
    if (static_cast<int64_t>(numbers.size()) > most) numbers.resize(static_cast<size_t>(std::max(most, int64_t{1})));
    return numbers;
  }

  // Whether every demand has a circuit or a chain of them; after it loads are known.
  bool load() {
    std::vector<std::pair<int32_t, int32_t>> joined;
    std::vector<size_t> edge_of;
    for (size_t i = 0; i < edges_.size(); ++i) {
      edges_[i].load = 0;
      if (edges_[i].count == 0) continue;
      joined.emplace_back(edges_[i].a, edges_[i].b % n_);
      if (is_paired_) joined.emplace_back(edges_[i].b, edges_[i].a);
      edge_of.insert(edge_of.end(), is_paired_ ? 2 : 1, i);
    }
    const std::vector<double> loads = relay_loads(demand_, joined);
    for (size_t j = 0; j < loads.size(); ++j) {
      double& most = edges_[edge_of[j]].load;  // of both directions
      most = std::max(most, loads[j]);
    }
    return loads.size() == joined.size() && (!joined.empty() || !has_demand());
  }

  bool has_demand() const {
    return std::any_of(edges_.begin(), edges_.end(), [](const Edge& edge) { return edge.num_bytes > 0; });
  }

  // [bytes a circuit]
  double busiest_circuit() const {
    double most = 0;
    for (const Edge& edge : edges_) {
      if (edge.count > 0) most = std::max(most, edge.load / edge.count);
    }
    return most;
  }

  [[noreturn]] void throw_unreached() const {
    ROSTAM_THROW(ConfigError, "fabric.num_ocs leaves " << ports_.num_ocs
                                                       << " circuits an accelerator: too few for relays to reach every "
                                                          "demanded pair; use more switches");
  }

  void open_in(const std::vector<size_t>& order, size_t most) {
    poll_interrupt();
    for (size_t k = 0; k < std::min(most, order.size()); ++k) {
      Edge& edge = edges_[order[k]];
      if (edge.num_bytes > 0 && edge.count == 0 && has_room(edge)) open(edge);
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
      poll_interrupt();
      add_pair(active[i], active[(i + 1) % active.size()], 0);
      const auto is_same = [wanted = edges_.back()](const Edge& e) { return e.a == wanted.a && e.b == wanted.b; };
      const auto demanded = std::find_if(edges_.begin(), edges_.begin() + demanded_end, is_same);
      const bool is_demanded = demanded != edges_.begin() + demanded_end;
      Edge& edge = is_demanded ? *demanded : edges_.back();
      if (edge.count == 0 && has_room(edge)) open(edge);
      if (is_demanded) edges_.pop_back();
    }
  }

  // Adds circuits one by one to the slowest pair that has room; pairs without a circuit (relayed) stay so.
  void widen() {
    using Entry = std::pair<double, size_t>;  // circuits per byte, edge
    std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> slowest;
    const auto push = [&](size_t i) { slowest.push({edges_[i].count / edges_[i].load, i}); };
    for (size_t i = 0; i < edges_.size(); ++i) {
      if (edges_[i].count > 0 && edges_[i].load > 0) push(i);
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
      edges_.push_back({edges_[i].b, n_ + edges_[i].a, edges_[i].num_bytes, edges_[i].count, edges_[i].load});
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
  Demand demand_;  // of relays
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
