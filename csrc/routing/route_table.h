// RouteTable: the routes of messages over all planes of a system, from one policy per class of equal planes.
// Engine links are numbered class by class. Routes that are set, by a controller say, go before the policies'; whoever
// keeps a route asks again once version() has changed. Messages under way are not touched.
// Example: RouteTable({{policy, 4}}, {}).route_of({0, 5, hash})->latency.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "routing/policy.h"

namespace rostam::routing {

// The same routing over the same fabric with more parts failed.
using PolicyAfter = std::function<std::shared_ptr<const RoutePolicy>(const fabric::Failures&)>;

// `num_planes` planes that are alike: messages put the same on each, so one is simulated.
struct PlaneClass {
  std::shared_ptr<const RoutePolicy> policy;
  int32_t num_planes = 1;
  PolicyAfter after;  // empty: its routes stay
};

// Where a message goes; `hash` tells the channels of a pair apart.
struct Channel {
  int32_t src = 0;
  int32_t dst = 0;
  uint64_t hash = 0;
};

// What a pair without a path gets: an error, or no route, so that its messages wait for one.
enum class MissingRoute { kThrow, kPark };

class RouteTable {
 public:
  // Throws: ConfigError without planes.
  explicit RouteTable(std::vector<PlaneClass> planes, MissingRoute missing = MissingRoute::kThrow);

  // The route of messages that start now: of a single class of planes as its policy has it, else with one lane for
  // each class in which the pair is connected, split by what each offers: the least of capacity / share; equally where
  // none offers anything now.
  // Empty: no path, and such messages wait. Throws: NoRouteError for a pair without a path where they may not.
  // num_bytes: of the message, for policies that read what waits.
  std::optional<Route> route_of(const Channel& channel, Detail detail = Detail::kShares, int64_t num_bytes = 0) const;

  // From now on messages of the channel take `route`, over whatever links. Throws: ConfigError for links that do not
  // exist or are removed, or a route that does not join the channel's ends.
  void set_route(const Channel& channel, Route route);
  // Of all channels of the pair that the route joins, those with routes of their own included. least_bytes: messages
  // below go on as the policies have it.
  void set_routes(Route route, int64_t least_bytes = 0);
  // Back to the policies' for all channels of a pair.
  void unset_routes(int32_t src, int32_t dst);
  // Whether messages of a pair take one route or another by their size.
  bool parts_by_size(int32_t src, int32_t dst) const;
  // Back to the pair's route, or the policies'.
  void unset_route(const Channel& channel);
  // From now on the planes of a class are routed by another policy: after failures, say.
  // REQUIRES: the same engine links. Throws: ConfigError otherwise.
  void set_policy(size_t plane_class, std::shared_ptr<const RoutePolicy> policy);
  // Counts the calls above.
  uint64_t version() const { return version_; }

  void set_missing(MissingRoute missing) { missing_ = missing; }
  bool parks_missing() const { return missing_ == MissingRoute::kPark; }

  // Engine links of all classes; links that are added in a run follow. A route over a removed link is none. Where
  // planes differ messages that start now are split by the capacities of now. Units: capacity [bytes/s].
  const EngineLinks& links() const { return links_; }
  void set_capacity(int32_t link, double bytes_per_s);
  int32_t add_link(double bytes_per_s);
  void remove_link(int32_t link);

  const std::vector<PlaneClass>& planes() const { return planes_; }
  int32_t num_accelerators() const { return planes_.front().policy->fabric().num_accelerators(); }
  int32_t num_planes() const;  // of all classes
  bool is_hash_free() const;
  // True if every message asks for a route of its own, since policies read what waits for links.
  bool reads_backlog() const;
  // What such policies read from now on; null: nothing waits. It must outlive the table or be replaced.
  void read_backlog(const LinkBacklog* backlog) { backlog_ = backlog; }
  // The most virtual channels of a link, of all policies; may_fail: also those of walks that are there for want of
  // others (fabric::PathRule) once parts have failed. Cost: of dfsssp, its virtual layers.
  int32_t num_virtual_channels(bool may_fail) const;
  // True if engines divide messages over the paths of their routes.
  bool is_adaptive() const { return links_.is_adaptive; }
  // Whether a transfer may be a tree (region_route.h): not where engines divide messages, or planes differ.
  bool knows_trees() const { return planes_.size() == 1 && !is_adaptive(); }
  std::vector<std::string> notes() const;  // of the policies, each once

  // What each plane carries of a message: for engines, which send lanes' own parts of all bytes.
  int64_t wire_bytes(int64_t bytes) const;
  // Planes that one simulated plane stands for in it; 1 where planes differ.
  int32_t num_alike() const { return planes_.size() > 1 ? 1 : planes_.front().num_planes; }

 private:
  struct ChannelHash {
    size_t operator()(const std::tuple<int32_t, int32_t, uint64_t>& key) const;
  };
  using Pair = std::pair<int32_t, int32_t>;
  double offer_of(const Route& route) const;
  void check_route(const Route& route, int32_t src, int32_t dst) const;
  const Route* find_set(const Channel& channel, int64_t num_bytes) const;
  void check_not_removed(const Route& route) const;
  Route policy_route(const Channel& channel, Detail detail, int64_t num_bytes) const;
  Route striped_route(const Channel& channel, const RouteQuery& query, bool wants_offer) const;

  Detours later_detours(const Detours& own, size_t plane_class) const;

  std::vector<PlaneClass> planes_;
  std::vector<int32_t> first_link_;  // of each class
  struct LaterLegs {                 // of each class: its policy's, with links numbered on
    std::shared_ptr<const Waypoints> own, later;
  };
  mutable std::vector<LaterLegs> later_legs_;
  EngineLinks links_;
  MissingRoute missing_;
  std::unordered_map<std::tuple<int32_t, int32_t, uint64_t>, Route, ChannelHash> set_;
  struct PairRoute {
    Route route;
    int64_t least_bytes = 0;
  };
  std::map<Pair, PairRoute> set_of_pairs_;
  std::vector<uint8_t> is_removed_;  // per engine link; shorter where none behind is
  uint64_t version_ = 0;
  const LinkBacklog* backlog_ = nullptr;
};

}  // namespace rostam::routing
