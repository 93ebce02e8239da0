#include "runtime/messenger.h"

#include <utility>

#include "sim/random.h"

namespace rostam::runtime {

Messenger::Messenger(const folding::WeightedSystem& system, const routing::RouteTable& routes,
                     const SessionOptions& options, EventQueue& queue, Ledger& ledger, routing::EndPoints& end_points,
                     MessageClient& client)
    : system_(system),
      route_table_(routes),
      options_(options),
      queue_(queue),
      ledger_(ledger),
      client_(client),
      late_arrivals_(*this, &Messenger::on_delivered),
      network_(network::make_network(options.fidelity, queue, system.links, *this)),
      end_points_(end_points),
      routes_(system.channels.size(), kNoRoute) {
  for (const workload::Device& device : system.devices) last_routes_.emplace_back(device.slots.size());
}

int32_t Messenger::make(int32_t source, int32_t slot, int32_t peer) {
  int32_t index;
  if (free_.empty()) {
    index = static_cast<int32_t>(messages_.size());
    messages_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  Message& message = messages_[index];
  message.source = source;
  message.slot = slot;
  message.peer = peer;
  message.target = system_.device_stand_in[peer];
  message.is_send = message.is_sending = message.is_synchronous = message.is_ordered = false;
  return index;
}

void Messenger::send(int32_t index) {
  const network::RouteId route = route_of(messages_[index].source, messages_[index].slot, messages_[index].peer);
  messages_[index].route = route;
  if (watcher_ != nullptr) watcher_->before_send(route);
  Message& message = messages_[index];  // the watcher may have made more
  message.is_sending = true;
  const int64_t bytes = wire_bytes(message.bytes);
  message.transfer = network_->start({route, bytes, static_cast<uint64_t>(index)});
  message.carried = static_cast<double>(network_->carried_bytes(route, bytes));
  if (control_ != nullptr) tell_controllers(control::kFlowStart, message);
}

void Messenger::tell_controllers(control::EventKind kind, const Message& message) {
  control::Event event;
  event.kind = kind;
  event.src = system_.devices[message.source].accelerator;
  event.dst = system_.graph->devices[message.peer].accelerator;
  event.bytes = message.bytes;
  control_->tell(event);
}

void Messenger::set_route(const routing::Route& route) {
  ROSTAM_CHECK(watcher_ == nullptr && !system_.is_folded, "a route is set where shortcuts or folding rely on routes");
  set_routes_[{route.src, route.dst}] = route;
  for (int32_t d = 0; d < static_cast<int32_t>(system_.devices.size()); ++d) {
    if (system_.devices[d].accelerator != route.src) continue;
    for (int32_t slot = 0; slot < static_cast<int32_t>(last_routes_[d].size()); ++slot) {
      for (const int32_t peer : system_.channels.destinations(d, slot)) {
        if (system_.graph->devices[peer].accelerator != route.dst) continue;
        routes_[system_.channels.find(d, slot, peer)] = kNoRoute;
        last_routes_[d][slot] = LastRoute();
      }
    }
  }
  for (Message& message : messages_) {
    const bool is_meant = message.is_sending && system_.devices[message.source].accelerator == route.src &&
                          system_.graph->devices[message.peer].accelerator == route.dst;
    if (!is_meant) continue;
    message.route = route_of(message.source, message.slot, message.peer);
    message.carried -= network_->backlog(message.transfer);
    network_->set_route(message.transfer, message.route);
    message.carried += network_->backlog(message.transfer);  // what is left may be split over planes anew
  }
}

void Messenger::resume(int32_t index, SimTime started) {
  Message& message = messages_[index];
  message.route = route_of(message.source, message.slot, message.peer);
  message.is_sending = true;
  const int64_t bytes = wire_bytes(message.bytes);
  message.transfer = network_->resume({message.route, bytes, static_cast<uint64_t>(index)}, started);
  message.carried = static_cast<double>(bytes);
}

void Messenger::deliver_at(int32_t index, SimTime time) {
  queue_.schedule(time, Priority::kNormal, &late_arrivals_, static_cast<uint64_t>(index));
}

network::RouteId Messenger::route_of(int32_t d, int32_t slot, int32_t peer) {
  LastRoute& last = last_routes_[d][slot];
  if (last.peer == peer) return last.route;
  const workload::ChannelId channel = system_.channels.find(d, slot, peer);
  network::RouteId& id = routes_[channel];
  if (id == kNoRoute) {
    const routing::Route route = make_route(d, slot, peer);
    id = network_->add_route(route, channel);
    if (watcher_ != nullptr) watcher_->on_new_route(id, route, d, slot);
  }
  last = {peer, id};
  return id;
}

routing::Route Messenger::make_route(int32_t d, int32_t slot, int32_t peer) {
  if (system_.is_folded) return system_.routes[system_.channels.find(d, slot, peer)];
  const int32_t from = system_.devices[d].accelerator, to = system_.graph->devices[peer].accelerator;
  if (from == to) ROSTAM_THROW(ConfigError, "two ranks of one group sit on accelerator " << from);
  const auto set = set_routes_.find({from, to});
  if (set != set_routes_.end()) return set->second;
  const auto rank = static_cast<uint64_t>(system_.channels.rank_in_pair(d, slot, peer));
  routing::Route route = *route_table_.route_of({from, to, mix(mix(options_.seed + rank) + pack(from, to))});
  end_points_.check_route(route, from, to);
  return route;
}

void Messenger::on_sent(uint64_t token) {
  Message& message = messages_[token];
  message.is_sending = false;
  if (watcher_ != nullptr) watcher_->after_sent(message.route);
  ledger_.count_on_wire(message.source, message.target, message.carried);
  ledger_.count_sent(message.source, message.iteration, message.category, message.bytes);
  if (control_ != nullptr) tell_controllers(control::kFlowEnd, message);
  client_.on_sent(message);
}

void Messenger::on_delivered(uint64_t token) {
  // Out of the pool first: what follows may start new messages.
  Message message = std::move(messages_[token]);
  free_.push_back(static_cast<int32_t>(token));
  ledger_.count_received(message.source, message.iteration, message.category, message.bytes);
  client_.on_delivered(message);
}

void Messenger::count_under_way() {
  for (const Message& message : messages_) {
    if (!message.is_sending) continue;
    const double left = network_->backlog(message.transfer);
    ledger_.count_on_wire(message.source, message.target, message.carried - left);
  }
}

void Messenger::throw_if_endless(SimTime now) const {
  for (const Message& message : messages_) {
    if (!message.is_sending || !network_->is_endless(message.transfer)) continue;
    ROSTAM_THROW(ConfigError, "a message of " << message.bytes << " bytes from accelerator "
                                              << system_.devices[message.source].accelerator << " to "
                                              << system_.graph->devices[message.peer].accelerator << " ("
                                              << system_.graph->categories[message.category] << ", iteration "
                                              << message.iteration << ") has " << network_->backlog(message.transfer)
                                              << " bytes left at " << now.seconds()
                                              << " s and would not be through by the end of simulated time, 106 days;"
                                                 " look for a lost unit in a bandwidth or size");
  }
}

}  // namespace rostam::runtime
