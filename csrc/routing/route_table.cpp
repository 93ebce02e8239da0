#include "routing/route_table.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "routing/waypoints.h"
#include "sim/random.h"

namespace rostam::routing {

size_t RouteTable::ChannelHash::operator()(const std::tuple<int32_t, int32_t, uint64_t>& key) const {
  const auto [src, dst, hash] = key;
  return static_cast<size_t>(mix(hash ^ mix((static_cast<uint64_t>(src) << 32) | static_cast<uint32_t>(dst))));
}

namespace {

// That of one class of planes, whose policy numbers its own links.
class PlaneBacklog : public LinkBacklog {
 public:
  PlaneBacklog(const LinkBacklog* all, int32_t first_link) : all_(all), first_link_(first_link) {}
  double bytes_waiting(int32_t link) const override {
    return all_ == nullptr ? 0 : all_->bytes_waiting(first_link_ + link);
  }
  double bytes_beside(int32_t link, double alone_s) const override {
    return all_ == nullptr ? 0 : all_->bytes_beside(first_link_ + link, alone_s);
  }

 private:
  const LinkBacklog* all_;
  int32_t first_link_;
};

// Those of one class of planes.
class LaterLinks : public Waypoints {
 public:
  LaterLinks(std::shared_ptr<const Waypoints> own, int32_t first_link)
      : own_(std::move(own)), first_link_(first_link) {}
  Steps leg(int32_t from, int32_t to, int32_t part) const override {
    Steps steps = own_->leg(from, to, part);
    for (Steps::Hop& hop : steps.hops) hop.link += first_link_;
    return steps;
  }

 private:
  std::shared_ptr<const Waypoints> own_;
  int32_t first_link_;
};

void append_steps(const Steps& more, int32_t first_link, Steps& steps) {
  const auto num_nodes = static_cast<uint32_t>(steps.nodes.size()), num_hops = static_cast<uint32_t>(steps.hops.size());
  for (Steps::Node node : more.nodes) {
    node.first_hop += num_hops;
    node.end_hop += num_hops;
    steps.nodes.push_back(node);
  }
  for (const Steps::Hop& hop : more.hops) {
    steps.hops.push_back({hop.link + first_link, hop.node + num_nodes, hop.channel});
  }
}

}  // namespace

RouteTable::RouteTable(std::vector<PlaneClass> planes, MissingRoute missing)
    : planes_(std::move(planes)), missing_(missing) {
  if (planes_.empty()) throw ConfigError("a system needs at least one plane");
  for (const PlaneClass& one : planes_) {
    if (one.num_planes < 1) ROSTAM_THROW(ConfigError, "a class has " << one.num_planes << " planes; it needs >= 1");
    first_link_.push_back(static_cast<int32_t>(links_.capacities.size()));
    links_.append(one.policy->links());
    links_.is_adaptive = links_.is_adaptive || one.policy->is_adaptive();
  }
}

bool RouteTable::is_hash_free() const {
  return set_.empty() &&
         std::all_of(planes_.begin(), planes_.end(), [](const PlaneClass& one) { return one.policy->is_hash_free(); });
}

bool RouteTable::reads_backlog() const {
  return std::any_of(planes_.begin(), planes_.end(), [](const PlaneClass& one) { return one.policy->reads_backlog(); });
}

int32_t RouteTable::num_virtual_channels(bool may_fail) const {
  int32_t most = 1;
  for (const PlaneClass& one : planes_) {
    most = std::max(most, one.policy->num_virtual_channels());
    if (!may_fail || !one.after || !one.policy->has_same_channels_after_failures()) continue;
    most = std::max(most, one.after({{}, {0}, {}})->num_virtual_channels());
  }
  return most;
}

std::vector<std::string> RouteTable::notes() const {
  std::vector<std::string> found;
  for (const PlaneClass& one : planes_) {
    std::string note = one.policy->note();
    if (!note.empty() && std::find(found.begin(), found.end(), note) == found.end()) found.push_back(std::move(note));
  }
  return found;
}

int32_t RouteTable::num_planes() const {
  int32_t count = 0;
  for (const PlaneClass& one : planes_) count += one.num_planes;
  return count;
}

int64_t RouteTable::wire_bytes(int64_t bytes) const {
  const int64_t num_planes = num_alike();
  return num_planes == 1 ? bytes : bytes / num_planes + (bytes % num_planes > 0);
}

const Route* RouteTable::find_set(const Channel& channel, int64_t num_bytes) const {
  if (!set_.empty()) {
    const auto found = set_.find({channel.src, channel.dst, channel.hash});
    if (found != set_.end()) return &found->second;
  }
  if (set_of_pairs_.empty()) return nullptr;
  const auto found = set_of_pairs_.find({channel.src, channel.dst});
  return found != set_of_pairs_.end() && num_bytes >= found->second.least_bytes ? &found->second.route : nullptr;
}

std::optional<Route> RouteTable::route_of(const Channel& channel, Detail detail, int64_t num_bytes) const {
  try {
    const Route* set = find_set(channel, num_bytes);
    if (set == nullptr) return policy_route(channel, detail, num_bytes);
    check_not_removed(*set);
    return *set;
  } catch (const NoRouteError&) {
    if (missing_ == MissingRoute::kThrow) throw;
    return std::nullopt;
  }
}

// Throws: NoRouteError if a link of the route is removed.
void RouteTable::check_not_removed(const Route& route) const {
  if (is_removed_.empty()) return;
  for (const LinkShare& hop : route.links) {
    const auto link = static_cast<size_t>(hop.link);
    if (link >= is_removed_.size() || !is_removed_[link]) continue;
    ROSTAM_THROW(NoRouteError, "link " << hop.link << " on the route from accelerator " << route.src << " to "
                                       << route.dst << " is removed");
  }
}

// Throws: NoRouteError if no plane connects the pair.
Route RouteTable::policy_route(const Channel& channel, Detail detail, int64_t num_bytes) const {
  const RouteQuery query{channel.hash, detail != Detail::kShares, backlog_,
                         static_cast<double>(num_bytes) / num_planes(), detail == Detail::kPackets};
  if (planes_.size() == 1) {
    Route route = planes_.front().policy->route(channel.src, channel.dst, query);
    check_not_removed(route);
    return route;
  }
  Route route = striped_route(channel, query, true);
  // Nothing can be sent now, and what the planes will offer is not known.
  return route.lanes.empty() ? striped_route(channel, query, false) : route;
}

// Without `wants_offer` planes that offer nothing now count as much as any.
Route RouteTable::striped_route(const Channel& channel, const RouteQuery& query, bool wants_offer) const {
  Route route;
  for (size_t k = 0; k < planes_.size(); ++k) {
    Route part;
    try {
      const PlaneBacklog own(query.backlog, first_link_[k]);
      part = planes_[k].policy->route(channel.src, channel.dst,
                                      {query.hash, query.wants_steps, &own, query.num_bytes, query.for_packets});
      for (LinkShare& hop : part.links) hop.link += first_link_[k];
      check_not_removed(part);
    } catch (const NoRouteError&) {
      if (k + 1 == planes_.size() && route.lanes.empty() && !wants_offer) throw;
      continue;
    }
    Lane lane;
    lane.first_link = static_cast<uint32_t>(route.links.size());
    lane.first_node = static_cast<uint32_t>(route.steps.nodes.size());
    lane.latency = part.latency;
    lane.num_planes = planes_[k].num_planes;
    lane.bytes_per_s = wants_offer ? offer_of(part) : 1;
    if (lane.bytes_per_s <= 0) continue;
    append_steps(part.steps, first_link_[k], route.steps);
    lane.detours = later_detours(part.detours, k);
    route.is_adaptive = route.is_adaptive || part.is_adaptive;
    route.is_by_load = route.is_by_load || part.is_by_load;
    route.links.insert(route.links.end(), part.links.begin(), part.links.end());
    lane.end_link = static_cast<uint32_t>(route.links.size());
    route.latency = std::max(route.latency, part.latency);
    route.lanes.push_back(lane);
  }
  route.src = channel.src;
  route.dst = channel.dst;
  return route;
}

Detours RouteTable::later_detours(const Detours& own, size_t plane_class) const {
  if (own.legs == nullptr) return own;
  later_legs_.resize(planes_.size());
  LaterLegs& known = later_legs_[plane_class];
  if (known.own != own.legs) known = {own.legs, std::make_shared<LaterLinks>(own.legs, first_link_[plane_class])};
  return {known.later, own.vertices, own.is_choice};
}

double RouteTable::offer_of(const Route& route) const {
  double offer = std::numeric_limits<double>::infinity();
  for (const LinkShare& hop : route.links) {
    offer = std::min(offer, links_.capacities[static_cast<size_t>(hop.link)] / hop.share);
  }
  return offer;
}

void RouteTable::check_route(const Route& route, int32_t src, int32_t dst) const {
  const auto num_links = static_cast<int32_t>(links_.capacities.size());
  for (const LinkShare& hop : route.links) {
    if (hop.link < 0 || hop.link >= num_links || !(hop.share > 0)) {
      ROSTAM_THROW(ConfigError, "a route from accelerator " << src << " to " << dst << " takes link " << hop.link
                                                            << " with share " << hop.share << "; links are 0 to "
                                                            << num_links - 1 << ", shares > 0");
    }
    if (static_cast<size_t>(hop.link) < is_removed_.size() && is_removed_[static_cast<size_t>(hop.link)]) {
      ROSTAM_THROW(ConfigError, "a route from accelerator " << src << " to " << dst << " takes link " << hop.link
                                                            << ", which is removed");
    }
  }
  if (route.src != src || route.dst != dst) {
    ROSTAM_THROW(ConfigError, "a route from accelerator " << route.src << " to " << route.dst
                                                          << " is set for messages from " << src << " to " << dst);
  }
}

void RouteTable::set_route(const Channel& channel, Route route) {
  check_route(route, channel.src, channel.dst);
  set_[{channel.src, channel.dst, channel.hash}] = std::move(route);
  ++version_;
}

void RouteTable::set_routes(Route route, int64_t least_bytes) {
  check_route(route, route.src, route.dst);
  for (auto own = set_.begin(); own != set_.end();) {
    const auto [src, dst, hash] = own->first;
    own = src == route.src && dst == route.dst ? set_.erase(own) : std::next(own);
  }
  const Pair pair = {route.src, route.dst};
  set_of_pairs_[pair] = {std::move(route), least_bytes};
  ++version_;
}

void RouteTable::unset_routes(int32_t src, int32_t dst) {
  set_of_pairs_.erase({src, dst});
  ++version_;
}

bool RouteTable::parts_by_size(int32_t src, int32_t dst) const {
  if (set_of_pairs_.empty()) return false;
  const auto found = set_of_pairs_.find({src, dst});
  return found != set_of_pairs_.end() && found->second.least_bytes > 0;
}

void RouteTable::unset_route(const Channel& channel) {
  set_.erase({channel.src, channel.dst, channel.hash});
  ++version_;
}

void RouteTable::set_policy(size_t plane_class, std::shared_ptr<const RoutePolicy> policy) {
  const EngineLinks& before = planes_.at(plane_class).policy->links();
  if (policy->links().of_link != before.of_link) {
    ROSTAM_THROW(ConfigError, "plane class " << plane_class << " has " << before.capacities.size()
                                             << " engine links, the new policy's fabric "
                                             << policy->links().capacities.size() << " or other ones");
  }
  planes_[plane_class].policy = std::move(policy);
  ++version_;
}

void RouteTable::set_capacity(int32_t link, double bytes_per_s) {
  links_.capacities.at(static_cast<size_t>(link)) = bytes_per_s;
  if (planes_.size() > 1) ++version_;  // messages are split by it
}

int32_t RouteTable::add_link(double bytes_per_s) {
  links_.capacities.push_back(bytes_per_s);
  links_.classes.push_back(0);
  links_.members.add({});
  return static_cast<int32_t>(links_.capacities.size()) - 1;
}

void RouteTable::remove_link(int32_t link) {
  is_removed_.resize(std::max(is_removed_.size(), static_cast<size_t>(link) + 1), 0);
  is_removed_[static_cast<size_t>(link)] = 1;
  set_capacity(link, 0);
  ++version_;
}

}  // namespace rostam::routing
