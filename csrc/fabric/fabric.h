// Fabric: accelerators, switches and directed links of one plane, frozen once built.
// Vertices 0..num_accelerators-1 are accelerators, then switches, then parts of servers: NICs and switches inside,
// which fail with their accelerators only. Every cable is two directed links.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/sim_time.h"

namespace rostam::fabric {

// A directed link. `bundle` joins parallel equal links that always carry equal load under spray
// (MODEL H24), e.g. all uplinks of one leaf; -1 where the link stands alone. Links of one cable share `cable`.
struct Link {
  int32_t src = 0;
  int32_t dst = 0;
  double capacity_bytes_per_s = 0;
  SimTime latency;
  int32_t bundle = -1;
  int32_t cable = 0;
};

// What a link is part of: inside a server it follows another protocol than between servers and switches.
enum class LinkClass : uint8_t { kNetwork = 0, kServer = 1 };

// Distance between vertices that nothing connects.
constexpr int32_t kUnreachable = 1 << 30;

// Hop counts of an intact fabric in closed form, so that no table grows with the square of accelerators.
class DistanceFunction {
 public:
  virtual ~DistanceFunction() = default;

  // Links on a shortest path from any vertex to an accelerator.
  virtual int32_t distance(int32_t vertex, int32_t accelerator) const = 0;

  // Links on the longest shortest path between two accelerators.
  virtual int32_t diameter() const = 0;

  // Optional short cut: true if the neighbours of `vertex` (!= accelerator) on minimal paths are exactly those
  // numbered first..last-1. Switches with thousands of ports need it.
  virtual bool next_range(int32_t /*vertex*/, int32_t /*accelerator*/, int32_t& /*first*/, int32_t& /*last*/) const {
    return false;
  }
};

// Which paths a fabric, or a routing, allows where shortest ones are not what it routes by: a walk is in a phase, 0 at
// its source, and each link leads to the next phase or may not be taken. Routes are the shortest of the allowed walks;
// phases are what packets' virtual channels follow. Example: local, global, local of a Dragonfly.
class PathRule {
 public:
  virtual ~PathRule() = default;
  virtual int32_t num_phases() const = 0;
  // The phase behind `link`, or -1 if a walk in `phase` may not take it.
  virtual int32_t next_phase(int32_t phase, const Link& link) const = 0;
  // Where walks start that from phase 0 reach their destination nowhere; -1 if there are none. No link leads from the
  // phases before it to those from it on, or back.
  virtual int32_t detour_phase() const { return -1; }
};

// Walks by `rule`, and where it leaves none those by `detours`, in phases of their own behind the rule's.
std::shared_ptr<const PathRule> make_rule_with_detours(std::shared_ptr<const PathRule> rule,
                                                       std::shared_ptr<const PathRule> detours);

// What one fabric's file fills in. `forward_latency` is paid at every vertex that a path goes through, its ends
// excluded. `bundles_collapse` says that wherever all minimal links out of a vertex are one bundle, the far
// ends go on over the same bundles with equal weights, so that one of them may stand for all. `board_size`
// consecutive accelerators are a board, which fails as one; 0 without boards.
struct Blueprint {
  std::string name;
  int32_t num_accelerators = 0;
  int32_t num_switches = 0;
  // Their cables to accelerators come after all others, and so do those that join two accelerators of such a server.
  int32_t num_server_parts = 0;
  std::vector<Link> links;
  bool accelerators_forward = false;
  bool bundles_collapse = false;
  int32_t board_size = 0;
  SimTime forward_latency;
  std::shared_ptr<const DistanceFunction> distance;  // none: breadth-first search
  std::shared_ptr<const PathRule> path_rule;         // none: all shortest paths; with one, distances are searched
  std::shared_ptr<const PathRule> detour_rule;       // of pairs that failures leave without such a path; none: no path
  std::shared_ptr<const PathRule> turn_rule;         // its turn model, phases are virtual channels; none: not stated
  // A turn model whose walks packets fall back on where they may take any minimal hop; none: adaptive routing keeps to
  // turn_rule, which may leave out minimal paths.
  std::shared_ptr<const PathRule> escape_rule;
  // Maps of all vertices, each by the image of every vertex, that take the fabric onto itself while nothing has failed.
  // Whoever relies on one checks it.
  std::vector<std::vector<int32_t>> symmetries;
  std::string no_route_hint;  // ends the error of a pair without a path

  // Adds both directions: a -> b in bundle `forth`, b -> a in bundle `back`.
  // Throws: ConfigError, as add_link, where links would take more memory than there is.
  void add_cable(int32_t a, int32_t b, double capacity_bytes_per_s, SimTime latency, int32_t forth = -1,
                 int32_t back = -1);
  // Adds a cable of a single direction.
  void add_link(int32_t src, int32_t dst, double capacity_bytes_per_s, SimTime latency);

 private:
  void make_room(size_t more);

  int32_t num_cables_ = 0;
};

// Failed parts by id: switches counted from 0, cables, accelerators; sorted and unique inside a Fabric.
struct Failures {
  std::vector<int32_t> switches;
  std::vector<int32_t> cables;
  std::vector<int32_t> accelerators;
};

// One way out of a vertex (or into it): the link and the vertex at its other end.
struct Hop {
  int32_t link = 0;
  int32_t neighbour = 0;
};

struct HopSpan {
  const Hop* first = nullptr;
  const Hop* last = nullptr;
  const Hop* begin() const { return first; }
  const Hop* end() const { return last; }
  int64_t size() const { return last - first; }
};

class Fabric {
 public:
  // Throws: ConfigError for link ends out of range or capacities not above zero.
  explicit Fabric(Blueprint blueprint);

  const std::string& name() const { return blueprint_.name; }
  int32_t num_accelerators() const { return blueprint_.num_accelerators; }
  int32_t num_switches() const { return blueprint_.num_switches; }
  int32_t num_vertices() const { return num_accelerators() + num_switches() + blueprint_.num_server_parts; }
  // Cables between accelerators (or their NICs) and switches, and between switches; not those inside servers.
  int32_t num_cables() const { return num_cables_; }
  // Failed links stay listed, so that ids never move; `out` and `in` leave them out.
  const std::vector<Link>& links() const { return blueprint_.links; }
  bool is_link_failed(int32_t link) const { return link_failed_[static_cast<size_t>(link)] != 0; }
  LinkClass class_of(const Link& link) const {
    return is_inside_server(link) ? LinkClass::kServer : LinkClass::kNetwork;
  }
  bool is_vertex_failed(int32_t vertex) const { return vertex_failed_[static_cast<size_t>(vertex)] != 0; }
  const Failures& failures() const { return failures_; }
  std::vector<int32_t> healthy_accelerators() const;

  // Working links from or to `vertex`, sorted by neighbour, then by link.
  HopSpan out(int32_t vertex) const { return span(out_, out_begin_, vertex); }
  HopSpan in(int32_t vertex) const { return span(in_, in_begin_, vertex); }

  bool can_forward(int32_t vertex) const { return vertex >= num_accelerators() || blueprint_.accelerators_forward; }
  SimTime forward_latency() const { return blueprint_.forward_latency; }
  bool bundles_collapse() const { return blueprint_.bundles_collapse; }

  // As stated for the intact fabric: failures may have broken them.
  const std::vector<std::vector<int32_t>>& symmetries() const { return blueprint_.symmetries; }

  const std::string& no_route_hint() const { return blueprint_.no_route_hint; }

  // The closed form, or null where failures (or a custom fabric) leave only search.
  const DistanceFunction* closed_form() const { return is_closed_form_valid_ ? blueprint_.distance.get() : nullptr; }

  // Phases of a walk; 1 where the fabric has no path rule.
  int32_t num_phases() const { return blueprint_.path_rule ? blueprint_.path_rule->num_phases() : 1; }
  // Which paths it allows, null for all shortest ones; with detours once parts have failed.
  const PathRule* path_rule() const { return blueprint_.path_rule.get(); }
  // What keeps packets free of deadlock, null where it states nothing. Walks by it are in their virtual channels.
  const std::shared_ptr<const PathRule>& turn_rule() const { return blueprint_.turn_rule; }
  // What packets that take any minimal hop wait for, null where adaptive routing keeps to the turn model.
  const std::shared_ptr<const PathRule>& escape_rule() const { return blueprint_.escape_rule; }

  // Hops to `target`, an accelerator or another vertex, over working parts, kUnreachable where there is no path, at
  // vertex x num_phases() + phase. From the detour phase on they are searched only where a working vertex is out of
  // reach from phase 0. Cost: O(links x phases).
  std::vector<int32_t> search_distances(int32_t target) const { return search_distances(target, path_rule()); }
  // The same over walks by another rule, or by none: all shortest ones.
  std::vector<int32_t> search_distances(int32_t target, const PathRule* rule) const;
  // Of such distances by path_rule() those of walks that start at a vertex.
  int32_t distance_from(int32_t vertex, const std::vector<int32_t>& distances) const;

  // Longest shortest path between working accelerators [links].
  // Throws: NoRouteError if two of them are cut apart. Cost: O(1) in closed form, else a search for each set of
  // accelerators that have the same neighbours.
  int32_t diameter() const;

  // Boards of `board_size` consecutive accelerators each; 0 where the fabric has none.
  int32_t num_boards() const { return blueprint_.board_size == 0 ? 0 : num_accelerators() / blueprint_.board_size; }

  // The accelerators of these boards. Throws: ConfigError for boards that do not exist.
  std::vector<int32_t> accelerators_on(const std::vector<int32_t>& boards) const;

  // The same fabric with these parts failed in addition. A failed link or switch that touches a bundle splits
  // all bundles: loads inside them are no longer equal.
  // Throws: ConfigError for ids that do not exist.
  std::shared_ptr<const Fabric> with_failures(const Failures& more) const;

  // The same fabric with every link's capacity multiplied, and its latency divided, by a factor of its own, and the
  // latency of forwarding divided by one. Links of a bundle that come out unequal split all bundles.
  // Throws: ConfigError unless there is a factor above zero for each link.
  std::shared_ptr<const Fabric> with_factors(const std::vector<double>& capacity, const std::vector<double>& latency,
                                             double forward_latency) const;

  // Ids of the working parts of `kind` ("switches", "links", "accelerators", or "boards" where there are any; a board
  // works while one of its accelerators does); of links those in `scope`: "network" for all but the cables of
  // accelerators that do not forward, "host" for those, "all".
  // Throws: ConfigError for another kind or scope.
  std::vector<int32_t> working_parts(const std::string& kind, const std::string& scope) const;

  // Working accelerators that failures have cut off: of every set that was connected in the intact fabric the part that
  // holds more than half of those that work goes on, and who reaches none of it is cut off; without such a part nobody
  // is. Cost: O(links) per part that is left.
  std::vector<int32_t> cut_off() const;

 private:
  // For every accelerator the number of its set of accelerators that reach each other; failed ones are alone.
  std::vector<int32_t> connected_sets() const;
  bool reaches_set(int32_t accelerator, const std::vector<int32_t>& set_of, int32_t set) const;
  bool is_host_cable(const Link& link) const;
  static HopSpan span(const std::vector<Hop>& hops, const std::vector<int64_t>& begin, int32_t vertex) {
    const size_t v = static_cast<size_t>(vertex);
    return {hops.data() + begin[v], hops.data() + begin[v + 1]};
  }
  void validate() const;
  bool is_inside_server(const Link& link) const;
  void index_links();
  // The same over phases first..end-1 of a rule, which no link leads out of or into.
  void search_phases(int32_t target, const PathRule* rule, int32_t first, int32_t end,
                     std::vector<int32_t>& hops) const;
  void fail_parts();
  void split_bundles();

  Blueprint blueprint_;
  Failures failures_;
  int32_t num_cables_ = 0;
  bool is_closed_form_valid_ = true;
  std::vector<uint8_t> link_failed_;
  std::vector<uint8_t> vertex_failed_;
  std::vector<Hop> out_;
  std::vector<Hop> in_;
  std::vector<int64_t> out_begin_;
  std::vector<int64_t> in_begin_;
};

// `count` of num_parts positions, each at most once, drawn with `seed`. REQUIRES: 0 <= count <= num_parts.
std::vector<int32_t> draw_parts(int32_t num_parts, int32_t count, uint64_t seed);

}  // namespace rostam::fabric
