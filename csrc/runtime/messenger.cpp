#include "runtime/messenger.h"

#include <algorithm>
#include <sstream>
#include <utility>

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
      routes_(system, routes, options.seed, *network_, end_points) {}

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
  message.state = MessageState::kMade;
  message.is_send = message.is_synchronous = message.is_ordered = false;
  return index;
}

void Messenger::send(int32_t index) {
  const network::RouteId route = route_of(messages_[index]);
  if (route == ChannelRoutes::kNoRoute) {
    messages_[index].state = MessageState::kParked;
    if (control_ != nullptr) tell_controllers(control::kFlowWait, messages_[index]);
    return;
  }
  messages_[index].route = route;
  if (watcher_ != nullptr) watcher_->before_send(route);
  Message& message = messages_[index];  // the watcher may have made more
  message.state = MessageState::kSending;
  const int64_t bytes = wire_bytes(message.bytes);
  message.transfer = network_->start({route, bytes, static_cast<uint64_t>(index)});
  message.carried = static_cast<double>(network_->carried_bytes(route, bytes));
  if (control_ != nullptr) tell_controllers(control::kFlowStart, message);
}

void Messenger::tell_controllers(control::EventKind kind, const Message& message) {
  control::Event event;
  event.kind = kind;
  event.src = system_.devices[message.source].accelerator;
  event.dst = system_.accelerator_of(message.peer);
  event.bytes = message.bytes;
  control_->tell(event);
}

void Messenger::move(int32_t src, int32_t dst) {
  routes_.forget(src, dst);
  for (size_t index = 0; index < messages_.size(); ++index) {
    Message& message = messages_[index];
    const bool is_waiting = message.state == MessageState::kParked;
    if (!is_waiting && message.state != MessageState::kSending) continue;
    if (system_.devices[message.source].accelerator != src || system_.accelerator_of(message.peer) != dst) continue;
    const network::RouteId route = route_of(message);
    if (route == ChannelRoutes::kNoRoute) continue;
    if (is_waiting) {
      send(static_cast<int32_t>(index));
      continue;
    }
    message.route = route;
    message.carried -= network_->backlog(message.transfer);
    network_->set_route(message.transfer, route);
    message.carried += network_->backlog(message.transfer);  // what is left may be split over planes anew
  }
}

void Messenger::resume(int32_t index, SimTime started) {
  Message& message = messages_[index];
  message.route = route_of(message);
  message.state = MessageState::kSending;
  const int64_t bytes = wire_bytes(message.bytes);
  message.transfer = network_->resume({message.route, bytes, static_cast<uint64_t>(index)}, started);
  message.carried = static_cast<double>(bytes);
}

void Messenger::deliver_at(int32_t index, SimTime time) {
  queue_.schedule(time, Priority::kNormal, &late_arrivals_, static_cast<uint64_t>(index));
}

void Messenger::on_sent(uint64_t token) {
  Message& message = messages_[token];
  message.state = MessageState::kSent;
  if (watcher_ != nullptr) watcher_->after_sent(message.route);
  ledger_.count_on_wire(message.source, message.target, message.carried);
  ledger_.count_sent(message.source, message.iteration, message.category, message.bytes);
  if (control_ != nullptr) tell_controllers(control::kFlowEnd, message);
  client_.on_sent(message);
}

void Messenger::on_delivered(uint64_t token) {
  // Out of the pool first: what follows may start new messages.
  Message message = std::move(messages_[token]);
  free(static_cast<int32_t>(token));
  if (message.state == MessageState::kCut) return;
  ledger_.count_received(message.source, message.iteration, message.category, message.bytes);
  client_.on_delivered(message);
}

void Messenger::free(int32_t index) {
  messages_[index].state = MessageState::kFree;
  messages_[index].origin = CriticalPath::Ref();
  free_.push_back(index);
}

void Messenger::cut(int32_t job) {
  for (size_t index = 0; index < messages_.size(); ++index) {
    const Message& message = messages_[index];
    if (message.state == MessageState::kFree || system_.devices[message.source].job != job) continue;
    cut_message(static_cast<int32_t>(index));
  }
}

void Messenger::cut_message(int32_t index) {
  Message& message = messages_[index];
  if (message.state == MessageState::kSent) {
    ledger_.count_lost(message.source, message.iteration, message.category, 0, message.bytes);
    message.state = MessageState::kCut;
    message.origin = CriticalPath::Ref();
    return;
  }
  if (message.state == MessageState::kCut) return;
  const bool is_sending = message.state == MessageState::kSending;
  if (is_sending) {
    const double crossed = message.carried - network_->backlog(message.transfer);
    network_->cancel(message.transfer);
    ledger_.count_on_wire(message.source, message.target, crossed);
    const double share = message.carried > 0 ? crossed / message.carried : 0;
    const auto sent = std::min(message.bytes, static_cast<int64_t>(static_cast<double>(message.bytes) * share));
    ledger_.count_lost(message.source, message.iteration, message.category, sent, sent);
  }
  const Message ended = std::move(message);
  free(index);
  if (is_sending && control_ != nullptr) tell_controllers(control::kFlowEnd, ended);
}

void Messenger::count_under_way() {
  for (const Message& message : messages_) {
    if (message.state != MessageState::kSending) continue;
    const double left = network_->backlog(message.transfer);
    ledger_.count_on_wire(message.source, message.target, message.carried - left);
  }
}

void Messenger::throw_if_stuck(SimTime now) const {
  for (const Message& message : messages_) {
    const bool is_waiting = message.state == MessageState::kParked;
    const bool is_sending = message.state == MessageState::kSending;
    if (!is_waiting && !(is_sending && network_->is_endless(message.transfer))) continue;
    std::ostringstream text;
    text << "a message of " << message.bytes << " bytes from accelerator "
         << system_.devices[message.source].accelerator << " to " << system_.accelerator_of(message.peer) << " ("
         << system_.graph->categories[message.category] << ", iteration " << message.iteration << ")";
    if (is_waiting) {
      ROSTAM_THROW(NoRouteError, text.str() << " waits for a route at " << now.seconds()
                                            << " s, and nothing will give it one: a controller must set it");
    }
    ROSTAM_THROW(ConfigError, text.str() << " has " << network_->backlog(message.transfer) << " bytes left at "
                                         << now.seconds()
                                         << " s and would not be through by the end of simulated time, 106 days; look"
                                            " for a lost unit in a bandwidth or size");
  }
}

}  // namespace rostam::runtime
