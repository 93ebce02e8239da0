#include "network/striped_network.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace rostam::network {

using routing::Lane;
using routing::Route;

StripedNetwork::StripedNetwork(MakeEngine make, bool walks_packets, EventQueue& queue, const LinkTable& links,
                               NetworkClient& client)
    : client_(client), walks_packets_(walks_packets), engine_(make(queue, links, *this)) {}

RouteId StripedNetwork::add_route(const Route& route, uint64_t name) {
  StripedRoute striped;
  if (route.lanes.empty()) striped.parts.push_back(engine_->add_route(route, name));
  for (size_t k = 0; k < route.lanes.size(); ++k) {
    const Lane& lane = route.lanes[k];
    Route part;
    part.is_adaptive = route.is_adaptive;
    part.is_by_load = route.is_by_load;
    part.detours = lane.detours;
    if (!route.steps.nodes.empty()) {
      const bool is_last = k + 1 == route.lanes.size();
      const auto end = is_last ? static_cast<uint32_t>(route.steps.nodes.size()) : route.lanes[k + 1].first_node;
      part.steps = routing::steps_between(route.steps, lane.first_node, end);
    }
    part.src = route.src;
    part.dst = route.dst;
    part.latency = lane.latency;
    part.links.assign(route.links.begin() + lane.first_link, route.links.begin() + lane.end_link);
    // Lanes share no link, so that one name serves them all.
    striped.parts.push_back(engine_->add_route(part, name));
  }
  striped.route.src = route.src;
  striped.route.dst = route.dst;
  striped.route.lanes = route.lanes;
  routes_.push_back(std::move(striped));
  return static_cast<RouteId>(routes_.size() - 1);
}

std::vector<int32_t> StripedNetwork::links_of(RouteId route) const {
  std::vector<int32_t> links;
  for (const RouteId part : routes_[route].parts) {
    const std::vector<int32_t> own = engine_->links_of(part);
    links.insert(links.end(), own.begin(), own.end());
  }
  return links;
}

TransferId StripedNetwork::new_whole(const Transfer& transfer) {
  TransferId id = static_cast<TransferId>(wholes_.size());
  if (free_wholes_.empty()) {
    wholes_.emplace_back();
  } else {
    id = free_wholes_.back();
    free_wholes_.pop_back();
  }
  Whole& whole = wholes_[id];
  whole.token = transfer.token;
  whole.rate_cap = transfer.rate_cap;
  whole.extra_latency = transfer.extra_latency;
  whole.route = transfer.route;
  whole.num_unsent = whole.num_undelivered = 0;
  whole.is_active = true;
  whole.is_cancelled = false;
  ++num_active_;
  return id;
}

uint32_t StripedNetwork::new_part(TransferId whole, int32_t num_planes) {
  uint32_t id = static_cast<uint32_t>(parts_.size());
  if (free_parts_.empty()) {
    parts_.emplace_back();
  } else {
    id = free_parts_.back();
    free_parts_.pop_back();
  }
  parts_[id] = {whole, 0, num_planes, false};
  ++wholes_[whole].num_unsent;
  ++wholes_[whole].num_undelivered;
  wholes_[whole].parts.push_back(id);
  return id;
}

TransferId StripedNetwork::start(const Transfer& transfer) {
  const TransferId id = new_whole(transfer);
  start_parts(id, transfer.bytes);
  return id;
}

void StripedNetwork::start_parts(TransferId id, int64_t bytes) {
  const StripedRoute& striped = routes_[wholes_[id].route];
  const std::vector<Lane>& lanes = striped.route.lanes;
  const double rate_cap = wholes_[id].rate_cap;
  const SimTime extra_latency = wholes_[id].extra_latency;
  if (lanes.empty()) {
    const uint32_t part = new_part(id, 1);
    parts_[part].engine_id = engine_->start({striped.parts.front(), bytes, part, rate_cap, extra_latency});
    return;
  }
  const std::vector<int64_t> shares = routing::lane_bytes(striped.route, bytes);
  double total = 0;
  for (const Lane& lane : lanes) total += lane.bytes_per_s * lane.num_planes;
  for (size_t k = 0; k < lanes.size(); ++k) {
    const uint32_t part = new_part(id, lanes[k].num_planes);
    const double cap = rate_cap * (lanes[k].bytes_per_s / total);
    parts_[part].engine_id = engine_->start({striped.parts[k], shares[k], part, cap, extra_latency});
  }
}

TransferId StripedNetwork::resume(const Transfer& transfer, SimTime started) {
  const StripedRoute& striped = routes_[transfer.route];
  ROSTAM_CHECK(striped.route.lanes.empty(), "a transfer over planes that differ is resumed");
  const TransferId id = new_whole(transfer);
  const uint32_t part = new_part(id, 1);
  Transfer inner = transfer;
  inner.route = striped.parts.front();
  inner.token = part;
  parts_[part].engine_id = engine_->resume(inner, started);
  return id;
}

void StripedNetwork::on_sent(uint64_t token) {
  const TransferId id = parts_[token].whole;
  parts_[token].is_sent = true;
  Whole& whole = wholes_[id];
  if (--whole.num_unsent > 0 || whole.is_cancelled) return;
  whole.is_active = false;
  --num_active_;
  client_.on_sent(whole.token);
}

void StripedNetwork::on_delivered(uint64_t token) {
  const TransferId id = parts_[token].whole;
  Whole& whole = wholes_[id];
  whole.parts.erase(std::find(whole.parts.begin(), whole.parts.end(), static_cast<uint32_t>(token)));
  free_parts_.push_back(static_cast<uint32_t>(token));
  if (--whole.num_undelivered > 0) return;
  const bool is_heard = !whole.is_cancelled && !whole.is_active;
  const uint64_t whole_token = whole.token;
  release_if_over(id);
  if (is_heard) client_.on_delivered(whole_token);
}

void StripedNetwork::release_if_over(TransferId id) {
  if (wholes_[id].num_undelivered == 0 && !wholes_[id].is_active) free_wholes_.push_back(id);
}

// Takes the parts that are being sent off their links.
void StripedNetwork::stop_parts(TransferId id) {
  Whole& whole = wholes_[id];
  const std::vector<uint32_t> parts = std::exchange(whole.parts, {});
  for (const uint32_t part : parts) {
    if (parts_[part].is_sent) {
      whole.parts.push_back(part);
      continue;
    }
    engine_->cancel(parts_[part].engine_id);
    free_parts_.push_back(part);
    --whole.num_unsent;
    --whole.num_undelivered;
  }
}

void StripedNetwork::cancel(TransferId id) {
  stop_parts(id);
  wholes_[id].is_active = false;
  wholes_[id].is_cancelled = true;
  --num_active_;
  release_if_over(id);
}

void StripedNetwork::set_route(TransferId id, RouteId route) {
  Whole& whole = wholes_[id];
  const bool is_single = whole.parts.size() == 1 && routes_[whole.route].route.lanes.empty();
  if (is_single && routes_[route].route.lanes.empty()) {
    whole.route = route;
    engine_->set_route(parts_[whole.parts.front()].engine_id, routes_[route].parts.front());
    return;
  }
  if (walks_packets_) {
    throw ConfigError(
        "a message that is under way over planes that differ is moved, which packets cannot be; take "
        "fidelity=flow, or one plane");
  }
  // What is left is split anew, over whole bytes.
  const auto left = static_cast<int64_t>(std::ceil(backlog(id)));
  stop_parts(id);
  whole.route = route;
  start_parts(id, left);
}

int64_t StripedNetwork::carried_bytes(RouteId id, int64_t bytes) const {
  const Route& route = routes_[id].route;
  if (route.lanes.empty()) return bytes;
  const std::vector<int64_t> shares = routing::lane_bytes(route, bytes);
  int64_t carried = 0;
  for (size_t k = 0; k < shares.size(); ++k) carried += shares[k] * route.lanes[k].num_planes;
  return carried;
}

double StripedNetwork::backlog(TransferId id) const {
  double bytes = 0;
  for (const uint32_t part : wholes_[id].parts) {
    if (!parts_[part].is_sent) bytes += parts_[part].num_planes * engine_->backlog(parts_[part].engine_id);
  }
  return bytes;
}

double StripedNetwork::backlog(int32_t src, int32_t dst) const {
  double bytes = 0;
  for (TransferId id = 0; id < wholes_.size(); ++id) {
    const Route& route = routes_[wholes_[id].route].route;
    if (wholes_[id].is_active && route.src == src && route.dst == dst) bytes += backlog(id);
  }
  return bytes;
}

bool StripedNetwork::is_endless(TransferId id) const {
  const std::vector<uint32_t>& parts = wholes_[id].parts;
  return std::any_of(parts.begin(), parts.end(), [this](uint32_t part) {
    return !parts_[part].is_sent && engine_->is_endless(parts_[part].engine_id);
  });
}

SimTime StripedNetwork::stands_since(TransferId id) const {
  SimTime first = SimTime::never();
  for (const uint32_t part : wholes_[id].parts) {
    if (!parts_[part].is_sent) first = std::min(first, engine_->stands_since(parts_[part].engine_id));
  }
  return first;
}

NetworkStats StripedNetwork::stats() const {
  NetworkStats stats = engine_->stats();
  stats.num_active = num_active_;
  return stats;
}

}  // namespace rostam::network
