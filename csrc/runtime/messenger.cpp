#include "runtime/messenger.h"

#include <algorithm>
#include <limits>
#include <sstream>
#include <utility>

namespace rostam::runtime {

Messenger::Messenger(const folding::WeightedSystem& system, const routing::RouteTable& routes,
                     const SessionOptions& options, EventQueue& queue, Ledger& ledger, routing::EndPoints& end_points,
                     MessageClient& client)
    : system_(system),
      ledger_(ledger),
      client_(client),
      carrier_(options.fidelity, system.links, routes, queue, system.weights, *this),
      routes_(
          system, routes, options.seed,
          network::engine_traits(options.fidelity).walks_packets ? routing::Detail::kPackets : routing::Detail::kShares,
          carrier_.network(), end_points) {
  if (options.tolerance != 0) carrier_.network().set_tolerance(options.tolerance);
  carrier_.network().set_packets(options.packets);
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
  message.has_tree = workload::is_region(peer);
  message.target = message.has_tree ? source : system_.device_stand_in[peer];
  message.is_free = message.is_lost = false;
  message.state = ParcelState::kNone;
  message.is_send = message.is_synchronous = message.is_ordered = false;
  return index;
}

void Messenger::load(int32_t index, int64_t bytes, int32_t protocol) {
  Message& message = messages_[index];
  message.bytes = message.wire_bytes = bytes;
  message.rate_cap = std::numeric_limits<double>::infinity();
  message.extra_latency = SimTime::zero();
  if (protocol < 0) return;
  const workload::Protocol& own = system_.graph->protocols[protocol];
  message.wire_bytes = own.wire_bytes(bytes);
  const bool is_inside = is_inside_server(message);
  if (message.has_tree) {
    message.rate_cap = own.region_rate / carrier_.num_planes();
  } else if (is_inside) {
    message.rate_cap = own.server_rate / carrier_.num_planes();
  }
  message.extra_latency = is_inside ? own.server_hop : own.network_hop;
}

bool Messenger::is_inside_server(const Message& message) const {
  if (!message.has_tree) return system_.is_inside_server(message.source, message.peer);
  const workload::SlotBinding& binding = system_.devices[message.source].slots[message.slot];
  const std::vector<int32_t> members = system_.graph->region_members(binding, workload::region_of(message.peer));
  return std::all_of(members.begin(), members.end(),
                     [&](int32_t member) { return system_.is_inside_server(message.source, member); });
}

int64_t Messenger::received_bytes(const Message& message) const {
  if (!message.has_tree) return message.bytes;
  return system_.graph->regions[workload::region_of(message.peer)].received(message.bytes);
}

void Messenger::count_wire(const Parcel& parcel, double bytes, WireBytes& wire) const {
  const auto& message = static_cast<const Message&>(parcel);
  if (!message.has_tree) return CarrierClient::count_wire(parcel, bytes, wire);
  const workload::SlotBinding& binding = system_.devices[message.source].slots[message.slot];
  const std::vector<int32_t> members = system_.graph->region_members(binding, workload::region_of(message.peer));
  const std::vector<routing::RouteEnd>& ends = routes_.ends_of(message.source, message.slot, message.peer);
  for (size_t k = 0; k < members.size(); ++k) {
    wire.count_end(message.source, system_.device_stand_in[members[k]], ends[k].sent * bytes, ends[k].received * bytes);
  }
}

void Messenger::send(int32_t index) {
  const network::RouteId route = route_of(messages_[index]);
  if (watcher_ != nullptr) watcher_->before_send(route);  // there is one: with a watcher no message waits
  carrier_.send(index, messages_[index], route);
}

void Messenger::resume(int32_t index, SimTime started) {
  Message& message = messages_[index];
  carrier_.resume(index, message, route_of(message), started);
}

void Messenger::on_sent(int32_t index) {
  const Message& message = messages_[index];
  if (watcher_ != nullptr) watcher_->after_sent(message.route);
  ledger_.count_sent(message.source, message.iteration, message.category, message.bytes);
  if (message.has_tree) {
    ledger_.count_made(message.source, message.iteration, message.category, received_bytes(message) - message.bytes);
  }
  client_.on_sent(message);
}

void Messenger::on_delivered(int32_t index) {
  // Out of the pool first: what follows may start new messages.
  Message message = std::move(messages_[index]);
  free(index);
  if (message.is_lost) return;
  ledger_.count_received(message.source, message.iteration, message.category, received_bytes(message));
  client_.on_delivered(message);
}

Messenger::Ends Messenger::ends_of(int32_t index) const {
  const Message& message = messages_[index];
  const int32_t own = system_.devices[message.source].accelerator;
  return {own, message.has_tree ? own : system_.accelerator_of(message.peer)};
}

Messenger::Purpose Messenger::purpose_of(int32_t index) const {
  const Message& message = messages_[index];
  return {system_.devices[message.source].job, message.iteration, message.category};
}

network::RouteId Messenger::add_route(int32_t index, const routing::Route& route) {
  const Message& message = messages_[index];
  return routes_.add_route(message.source, message.slot, message.peer, route);
}

std::string Messenger::describe(int32_t index) const {
  const Message& message = messages_[index];
  const Ends ends = ends_of(index);
  std::ostringstream text;
  if (message.has_tree) {
    text << message.bytes << " bytes that switches add up or copy for accelerator " << ends.src << " (";
  } else {
    text << "a message of " << message.bytes << " bytes from accelerator " << ends.src << " to " << ends.dst << " (";
  }
  text << system_.graph->categories[message.category] << ", iteration " << message.iteration << ")";
  return text.str();
}

void Messenger::free(int32_t index) {
  messages_[index].is_free = true;
  messages_[index].origin = CriticalPath::Ref();
  free_.push_back(index);
}

void Messenger::cut(int32_t job) {
  for (size_t index = 0; index < messages_.size(); ++index) {
    const Message& message = messages_[index];
    if (message.is_free || message.is_lost || system_.devices[message.source].job != job) continue;
    cut_message(static_cast<int32_t>(index));
  }
}

void Messenger::cut_message(int32_t index) {
  Message& message = messages_[index];
  const ParcelState state = message.state;
  if (state == ParcelState::kSent) {
    ledger_.count_lost(message.source, message.iteration, message.category, 0, received_bytes(message));
    if (carrier_.cut_sent(index)) return free(index);
    message.is_lost = true;
    message.origin = CriticalPath::Ref();
    return;
  }
  if (state == ParcelState::kSending) {
    const int64_t sent = carrier_.cut(index);
    ledger_.count_lost(message.source, message.iteration, message.category, sent, sent);
  } else if (state == ParcelState::kWaiting) {
    carrier_.cut(index);
  }
  free(index);
}

}  // namespace rostam::runtime
