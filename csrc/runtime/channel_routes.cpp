#include "runtime/channel_routes.h"

#include <algorithm>
#include <utility>

#include "routing/region_route.h"
#include "runtime/member_event.h"
#include "sim/random.h"

namespace rostam::runtime {

using network::kNoRoute;

ChannelRoutes::ChannelRoutes(const folding::WeightedSystem& system, const routing::RouteTable& table, uint64_t seed,
                             routing::Detail detail, network::Network& network, routing::EndPoints& end_points)
    : system_(system),
      table_(table),
      seed_(seed),
      detail_(detail),
      network_(network),
      end_points_(end_points),
      routes_(system.channels.size(), kNoRoute) {
  for (const workload::Device& device : system.devices) last_routes_.emplace_back(device.slots.size());
}

network::RouteId ChannelRoutes::route_of(int32_t d, int32_t slot, int32_t peer, int64_t num_bytes) {
  LastRoute& last = last_routes_[d][slot];
  if (last.peer == peer && last.route != kNoRoute) return last.route;
  // Packets read what waits themselves.
  const bool reads_backlog = table_.reads_backlog() && detail_ != routing::Detail::kPackets;
  if (reads_backlog) ROSTAM_CHECK(watcher_ == nullptr, "routes follow what waits where shortcuts rely on them");
  if (reads_backlog || parts_by_size(d, peer)) return fresh_route(d, slot, peer, num_bytes);
  const workload::ChannelId channel = system_.channels.find(d, slot, peer);
  if (routes_[channel] == kNoRoute) routes_[channel] = first_route(d, slot, peer, channel);
  last = {peer, routes_[channel]};
  return last.route;
}

bool ChannelRoutes::parts_by_size(int32_t d, int32_t peer) const {
  return !workload::is_region(peer) && !system_.is_folded &&
         table_.parts_by_size(system_.devices[d].accelerator, system_.accelerator_of(peer));
}

network::RouteId ChannelRoutes::first_route(int32_t d, int32_t slot, int32_t peer, workload::ChannelId channel) {
  const std::optional<routing::Route> route = find_route(d, slot, peer, 0);
  if (!route.has_value()) return kNoRoute;
  const network::RouteId id = network_.add_route(*route, channel);
  if (watcher_ != nullptr) watcher_->on_new_route(id, *route, d, slot);
  return id;
}

network::RouteId ChannelRoutes::fresh_route(int32_t d, int32_t slot, int32_t peer, int64_t num_bytes) {
  const std::optional<routing::Route> route = find_route(d, slot, peer, num_bytes);
  return route.has_value() ? add_route(d, slot, peer, *route) : kNoRoute;
}

network::RouteId ChannelRoutes::add_route(int32_t d, int32_t slot, int32_t peer, const routing::Route& route) {
  const workload::ChannelId channel = system_.channels.find(d, slot, peer);
  std::vector<Candidate>& known = candidates_[channel];
  for (const Candidate& one : known) {
    if (one.links == route.links && one.latency == route.latency) return one.id;
  }
  const uint64_t name = static_cast<uint64_t>(known.size() + 1) << 40 | static_cast<uint64_t>(channel);
  known.push_back({route.links, route.latency, network_.add_route(route, name)});
  if (watcher_ != nullptr) watcher_->on_new_route(known.back().id, route, d, slot);
  return known.back().id;
}

const std::vector<routing::RouteEnd>& ChannelRoutes::ends_of(int32_t d, int32_t slot, int32_t peer) const {
  return ends_.at(system_.channels.find(d, slot, peer));
}

std::optional<routing::Route> ChannelRoutes::find_region_route(int32_t d, int32_t slot, int32_t region) {
  const workload::TaskGraph& graph = *system_.graph;
  const workload::SlotBinding& binding = system_.devices[d].slots[slot];
  std::vector<int32_t> members = graph.region_members(binding, region);
  for (int32_t& member : members) member = system_.accelerator_of(member);
  const collectives::Region& one = graph.regions[region];
  try {
    routing::Route route = routing::region_route(table_, one.op, members, static_cast<size_t>(one.place(binding.rank)));
    end_points_.check_region(route);
    return route;
  } catch (const NoRouteError&) {
    if (table_.parks_missing()) return std::nullopt;
    throw;
  }
}

std::optional<routing::Route> ChannelRoutes::find_route(int32_t d, int32_t slot, int32_t peer, int64_t num_bytes) {
  if (workload::is_region(peer)) {
    const workload::ChannelId channel = system_.channels.find(d, slot, peer);
    std::optional<routing::Route> route =
        system_.is_folded ? system_.routes[channel] : find_region_route(d, slot, workload::region_of(peer));
    if (route.has_value()) ends_[channel] = route->ends;
    return route;
  }
  if (system_.is_folded) return system_.routes[system_.channels.find(d, slot, peer)];
  const int32_t from = system_.devices[d].accelerator, to = system_.accelerator_of(peer);
  if (from == to) ROSTAM_THROW(ConfigError, "two ranks of one group sit on accelerator " << from);
  const auto rank = static_cast<uint64_t>(system_.channels.rank_in_pair(d, slot, peer));
  std::optional<routing::Route> route =
      table_.route_of({from, to, mix(mix(seed_ + rank) + pack(from, to))}, detail_, num_bytes);
  if (route.has_value()) end_points_.check_route(*route, from, to);
  return route;
}

routing::Route ChannelRoutes::make_route(int32_t d, int32_t slot, int32_t peer) {
  std::optional<routing::Route> route = find_route(d, slot, peer, 0);
  if (!route.has_value()) {
    ROSTAM_THROW(NoRouteError, "no path from accelerator " << system_.devices[d].accelerator << " to "
                                                           << system_.accelerator_of(peer));
  }
  return *std::move(route);
}

void ChannelRoutes::forget(int32_t src, int32_t dst) {
  ROSTAM_CHECK(!system_.is_folded, "a route is set where folding relies on routes");
  for (int32_t d = 0; d < static_cast<int32_t>(system_.devices.size()); ++d) {
    if (system_.devices[d].accelerator != src) continue;
    for (int32_t slot = 0; slot < static_cast<int32_t>(last_routes_[d].size()); ++slot) forget_slot(d, slot, dst);
  }
}

void ChannelRoutes::forget_slot(int32_t d, int32_t slot, int32_t dst) {
  for (const int32_t peer : system_.channels.destinations(d, slot)) {
    if (workload::is_region(peer) || system_.accelerator_of(peer) != dst) continue;
    routes_[system_.channels.find(d, slot, peer)] = kNoRoute;  // what it may take again stays registered
    last_routes_[d][slot] = LastRoute();
  }
}

void ChannelRoutes::forget_channel(workload::ChannelId channel) {
  routes_[channel] = kNoRoute;
  candidates_.erase(channel);
}

void ChannelRoutes::forget_device(int32_t d) {
  for (int32_t slot = 0; slot < static_cast<int32_t>(last_routes_[d].size()); ++slot) {
    for (const int32_t peer : system_.channels.destinations(d, slot)) {
      forget_channel(system_.channels.find(d, slot, peer));
    }
    last_routes_[d][slot] = LastRoute();
  }
}

void ChannelRoutes::forget_all() {
  ROSTAM_CHECK(!system_.is_folded, "routes change where folding relies on them");
  std::fill(routes_.begin(), routes_.end(), kNoRoute);
  candidates_.clear();
  for (std::vector<LastRoute>& slots : last_routes_) std::fill(slots.begin(), slots.end(), LastRoute());
}

}  // namespace rostam::runtime
