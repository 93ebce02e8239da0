#include "routing/route_table.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "sim/random.h"

namespace rostam::routing {

size_t RouteTable::ChannelHash::operator()(const std::tuple<int32_t, int32_t, uint64_t>& key) const {
  const auto [src, dst, hash] = key;
  return static_cast<size_t>(mix(hash ^ mix((static_cast<uint64_t>(src) << 32) | static_cast<uint32_t>(dst))));
}

namespace {

void append_steps(const Steps& more, int32_t first_link, Steps& steps) {
  const auto num_nodes = static_cast<uint32_t>(steps.nodes.size()), num_hops = static_cast<uint32_t>(steps.hops.size());
  for (Steps::Node node : more.nodes) {
    node.first_hop += num_hops;
    node.end_hop += num_hops;
    steps.nodes.push_back(node);
  }
  for (const Steps::Hop& hop : more.hops) steps.hops.push_back({hop.link + first_link, hop.node + num_nodes});
}

}  // namespace

RouteTable::RouteTable(std::vector<PlaneClass> planes, MissingRoute missing)
    : planes_(std::move(planes)), missing_(missing) {
  if (planes_.empty()) throw ConfigError("a system needs at least one plane");
  for (const PlaneClass& one : planes_) {
    if (one.num_planes < 1) ROSTAM_THROW(ConfigError, "a class has " << one.num_planes << " planes; it needs >= 1");
    first_link_.push_back(static_cast<int32_t>(links_.capacities.size()));
    links_.append(one.policy->links());
  }
}

bool RouteTable::is_hash_free() const {
  return set_.empty() &&
         std::all_of(planes_.begin(), planes_.end(), [](const PlaneClass& one) { return one.policy->is_hash_free(); });
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

std::optional<Route> RouteTable::route_of(const Channel& channel, bool wants_steps) const {
  if (!set_.empty()) {
    const auto found = set_.find({channel.src, channel.dst, channel.hash});
    if (found != set_.end()) return found->second;
  }
  try {
    return policy_route(channel, wants_steps);
  } catch (const NoRouteError&) {
    if (missing_ == MissingRoute::kThrow) throw;
    return std::nullopt;
  }
}

// Throws: NoRouteError if no plane connects the pair.
std::optional<Route> RouteTable::policy_route(const Channel& channel, bool wants_steps) const {
  const RouteQuery query{channel.hash, wants_steps};
  if (planes_.size() == 1) return planes_.front().policy->route(channel.src, channel.dst, query);
  Route route;
  for (size_t k = 0; k < planes_.size(); ++k) {
    Route part;
    try {
      part = planes_[k].policy->route(channel.src, channel.dst, query);
    } catch (const NoRouteError&) {
      if (k + 1 == planes_.size() && route.lanes.empty()) throw;
      continue;
    }
    for (LinkShare& hop : part.links) hop.link += first_link_[k];
    Lane lane;
    lane.first_link = static_cast<uint32_t>(route.links.size());
    lane.first_node = static_cast<uint32_t>(route.steps.nodes.size());
    lane.latency = part.latency;
    lane.num_planes = planes_[k].num_planes;
    lane.bytes_per_s = offer_of(part);
    if (lane.bytes_per_s <= 0) continue;
    append_steps(part.steps, first_link_[k], route.steps);
    route.links.insert(route.links.end(), part.links.begin(), part.links.end());
    lane.end_link = static_cast<uint32_t>(route.links.size());
    route.latency = std::max(route.latency, part.latency);
    route.lanes.push_back(lane);
  }
  if (route.lanes.empty()) {
    ROSTAM_THROW(NoRouteError,
                 "no plane has a path with bandwidth from accelerator " << channel.src << " to " << channel.dst);
  }
  route.src = channel.src;
  route.dst = channel.dst;
  return route;
}

double RouteTable::offer_of(const Route& route) const {
  double offer = std::numeric_limits<double>::infinity();
  for (const LinkShare& hop : route.links) {
    offer = std::min(offer, links_.capacities[static_cast<size_t>(hop.link)] / hop.share);
  }
  return offer;
}

void RouteTable::set_route(const Channel& channel, Route route) {
  const auto num_links = static_cast<int32_t>(links_.capacities.size());
  for (const LinkShare& hop : route.links) {
    if (hop.link < 0 || hop.link >= num_links || !(hop.share > 0)) {
      ROSTAM_THROW(ConfigError, "a route from accelerator " << channel.src << " to " << channel.dst << " takes link "
                                                            << hop.link << " with share " << hop.share
                                                            << "; links are 0 to " << num_links - 1 << ", shares > 0");
    }
  }
  if (route.src != channel.src || route.dst != channel.dst) {
    ROSTAM_THROW(ConfigError, "a route from accelerator " << route.src << " to " << route.dst
                                                          << " is set for messages from " << channel.src << " to "
                                                          << channel.dst);
  }
  set_[{channel.src, channel.dst, channel.hash}] = std::move(route);
  ++version_;
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
  links_.members.emplace_back();
  return static_cast<int32_t>(links_.capacities.size()) - 1;
}

}  // namespace rostam::routing
