#include "flow/adaptive_network.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rostam::flow {

namespace {

// What links of the inner network have more, so that rounding in a division holds no message below its rate; capacity
// is checked to 1e-9.
constexpr double kRoom = 1e-11;
constexpr size_t kMaxKnown = size_t{1} << 22;  // shares of divisions that are kept: 64 MB

network::LinkTable widened(const network::LinkTable& links) {
  network::LinkTable wider;
  for (int32_t l = 0; l < links.size(); ++l) {
    network::EngineLink link = links[l];
    link.bytes_per_s *= 1 + kRoom;
    wider.add(link, links.members(l));
  }
  return wider;
}

}  // namespace

using network::RouteId;
using network::Transfer;
using network::TransferId;

AdaptiveNetwork::AdaptiveNetwork(EventQueue& queue, const network::LinkTable& links, network::NetworkClient& client)
    : queue_(queue), client_(client), requests_(*this), inner_(queue, widened(links), *this) {
  for (int32_t l = 0; l < links.size(); ++l) capacities_.push_back(links[l].bytes_per_s);
}

RouteId AdaptiveNetwork::add_route(const routing::Route& route, uint64_t name) {
  if (!route.is_adaptive) {
    ROSTAM_THROW(ConfigError, "a route from accelerator " << route.src << " to " << route.dst
                                                          << " is set for routing adaptive, which divides messages by "
                                                             "itself; take spray or hash beside controllers that set "
                                                             "routes");
  }
  std::vector<int64_t> key = {route.src, route.dst};
  for (const routing::Steps::Hop& hop : route.steps.hops) key.push_back(int64_t{hop.link} << 32 | hop.node);
  const auto [graph, is_new] = graph_of_.emplace(std::move(key), static_cast<uint32_t>(graphs_.size()));
  if (is_new) graphs_.push_back({route.steps, route.links});
  routes_.push_back({graph->second, route.latency, name, route.src, route.dst});
  return static_cast<RouteId>(routes_.size() - 1);
}

void AdaptiveNetwork::set_tolerance(double share) {
  if (share == 0) return;
  throw ConfigError("tolerance is set, but routing adaptive is exact only; leave it at 0");
}

RouteId AdaptiveNetwork::inner_route(const AdaptiveRoute& route, const std::vector<routing::LinkShare>& shares) {
  routing::Route divided;
  divided.src = route.src;
  divided.dst = route.dst;
  divided.links = shares;
  divided.latency = route.latency;
  return inner_.add_route(divided, route.name);
}

uint32_t AdaptiveNetwork::new_message() {
  if (free_messages_.empty()) {
    free_messages_.push_back(static_cast<uint32_t>(messages_.size()));
    messages_.emplace_back();
    shares_.emplace_back();
  }
  const uint32_t id = free_messages_.back();
  free_messages_.pop_back();
  return id;
}

TransferId AdaptiveNetwork::start(const Transfer& transfer) {
  request();  // before the inner network's own
  const uint32_t id = new_message();
  const AdaptiveRoute& route = routes_[transfer.route];
  shares_[id] = graphs_[route.graph].even;
  Message& message = messages_[id];
  message = {transfer.token, transfer.route, inner_route(route, shares_[id]), 0, transfer.rate_cap, -1, false};
  message.is_sending = transfer.bytes > 0;
  Transfer inner = transfer;
  inner.route = message.inner_route;
  inner.token = id;
  const TransferId started = inner_.start(inner);
  messages_[id].inner = started;
  return id;
}

TransferId AdaptiveNetwork::resume(const Transfer& transfer, SimTime /*started*/) {
  ROSTAM_CHECK(false, "a message of route " << transfer.route << " is resumed, but how it was divided is not known");
}

void AdaptiveNetwork::cancel(TransferId id) {
  request();
  inner_.cancel(messages_[id].inner);
  inner_.remove_route(messages_[id].inner_route);
  messages_[id].is_sending = false;
  free_messages_.push_back(id);
}

void AdaptiveNetwork::set_route(TransferId id, RouteId route) {
  request();
  Message& message = messages_[id];
  if (inner_.backlog(message.inner) <= 0) return;  // it is through at this instant
  message.route = route;
  message.rate = -1;
  shares_[id] = graphs_[routes_[route].graph].even;
  const RouteId last = std::exchange(message.inner_route, inner_route(routes_[route], shares_[id]));
  inner_.set_route(message.inner, message.inner_route, message.rate_cap);
  inner_.remove_route(last);
}

void AdaptiveNetwork::set_capacity(int32_t link, double bytes_per_s) {
  inner_.set_capacity(link, bytes_per_s * (1 + kRoom));
  capacities_[static_cast<size_t>(link)] = bytes_per_s;
  known_.clear();
  num_known_ = 0;
  request();
}

int32_t AdaptiveNetwork::add_links(const std::vector<network::EngineLink>& links) {
  std::vector<network::EngineLink> wider = links;
  for (network::EngineLink& link : wider) {
    capacities_.push_back(link.bytes_per_s);
    link.bytes_per_s *= 1 + kRoom;
  }
  return inner_.add_links(wider);
}

void AdaptiveNetwork::remove_links(const std::vector<int32_t>& links) {
  inner_.remove_links(links);
  for (const int32_t link : links) capacities_[static_cast<size_t>(link)] = 0;
  known_.clear();
  num_known_ = 0;
  request();
}

double AdaptiveNetwork::backlog(TransferId id) const { return inner_.backlog(messages_[id].inner); }

bool AdaptiveNetwork::is_endless(TransferId id) const { return inner_.is_endless(messages_[id].inner); }

SimTime AdaptiveNetwork::stands_since(TransferId id) const { return inner_.stands_since(messages_[id].inner); }

network::NetworkStats AdaptiveNetwork::stats() const {
  network::NetworkStats stats = inner_.stats();
  stats.num_solves = num_solves_;
  return stats;
}

void AdaptiveNetwork::on_sent(uint64_t id) {
  Message& message = messages_[id];
  if (message.is_sending) request();
  message.is_sending = false;
  inner_.remove_route(message.inner_route);
  client_.on_sent(message.token);
}

void AdaptiveNetwork::on_delivered(uint64_t id) {
  const uint64_t token = messages_[id].token;
  free_messages_.push_back(static_cast<uint32_t>(id));
  client_.on_delivered(token);
}

void AdaptiveNetwork::request() {
  if (std::exchange(is_requested_, true)) return;
  queue_.schedule(queue_.now(), Priority::kSolve, &requests_, 0);
}

void AdaptiveNetwork::divide(uint64_t /*payload*/) {
  is_requested_ = false;
  // Messages that are alike, and the first graph that takes a link: graphs that share links are solved together.
  std::map<std::pair<uint32_t, double>, std::vector<uint32_t>> alike;
  for (uint32_t id = 0; id < messages_.size(); ++id) {
    const Message& message = messages_[id];
    if (!message.is_sending || inner_.backlog(message.inner) <= 0) continue;
    alike[{routes_[message.route].graph, message.rate_cap}].push_back(id);
  }
  std::vector<uint32_t> root(graphs_.size());
  std::iota(root.begin(), root.end(), 0u);
  const auto find = [&root](uint32_t graph) {
    while (root[graph] != graph) graph = root[graph] = root[root[graph]];
    return graph;
  };
  std::vector<uint32_t> first(capacities_.size(), static_cast<uint32_t>(graphs_.size()));
  for (const auto& [kind, ids] : alike) {
    for (const routing::LinkShare& hop : graphs_[kind.first].even) {
      uint32_t& taker = first[static_cast<size_t>(hop.link)];
      if (taker == graphs_.size()) taker = kind.first;
      const uint32_t a = find(taker), b = find(kind.first);
      root[std::max(a, b)] = std::min(a, b);
    }
  }
  std::map<uint32_t, std::vector<Alike>> together;
  for (const auto& [kind, ids] : alike) {
    together[find(kind.first)].emplace_back(kind.first, kind.second, static_cast<uint32_t>(ids.size()));
  }
  for (const auto& [_, kinds] : together) {
    const Divisions found = divisions(kinds);
    for (size_t k = 0; k < kinds.size(); ++k) {
      for (const uint32_t id : alike[{std::get<0>(kinds[k]), std::get<1>(kinds[k])}]) give(id, (*found)[k]);
    }
  }
}

AdaptiveNetwork::Divisions AdaptiveNetwork::divisions(const std::vector<Alike>& alike) {
  const auto known = known_.find(alike);
  if (known != known_.end()) return known->second;
  ++num_solves_;
  std::vector<Demand> demands;
  for (const auto& [graph, cap, count] : alike) {
    demands.push_back(
        {&graphs_[graph].steps, static_cast<double>(count), std::isfinite(cap) ? cap : 0, &graphs_[graph].even});
  }
  const Divisions found = std::make_shared<const std::vector<Division>>(adaptive_rates(demands, capacities_));
  for (const Division& one : *found) num_known_ += one.shares.size();
  if (num_known_ > kMaxKnown) {
    known_.clear();
    num_known_ = 0;
  }
  known_.emplace(alike, found);
  return found;
}

void AdaptiveNetwork::give(uint32_t id, const Division& division) {
  Message& message = messages_[id];
  if (message.rate == division.rate && shares_[id] == division.shares) return;
  message.rate = division.rate;
  shares_[id] = division.shares;
  const RouteId last = std::exchange(message.inner_route, inner_route(routes_[message.route], division.shares));
  inner_.set_route(message.inner, message.inner_route, division.rate);
  inner_.remove_route(last);
}

}  // namespace rostam::flow
