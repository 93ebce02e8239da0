#include "runtime/carrier.h"

#include <algorithm>
#include <utility>

namespace rostam::runtime {

namespace {

// Parcels whose memory is fetched before their turn, where all under way are read.
constexpr size_t kFetchedAhead = 8;

}  // namespace

Carrier::Carrier(const std::string& fidelity, const network::LinkTable& links, const routing::RouteTable& routes,
                 EventQueue& queue, std::vector<int64_t> weights, CarrierClient& client)
    : route_table_(routes),
      walks_packets_(network::engine_traits(fidelity).walks_packets),
      queue_(queue),
      client_(client),
      late_arrivals_(*this, &Carrier::on_delivered),
      network_(network::make_network(fidelity, queue, links, *this)),
      wire_(std::move(weights)) {}

void Carrier::send(int32_t number, Parcel& parcel, network::RouteId route) {
  if (route != network::kNoRoute) return start(number, parcel, route);
  parcel.state = ParcelState::kWaiting;
  note(number, true);
  if (watcher_ != nullptr) watcher_->on_begin(number);
  if (listener_ != nullptr) tell(control::kFlowWait, number, parcel);
}

void Carrier::start(int32_t number, Parcel& parcel, network::RouteId route) {
  parcel.state = ParcelState::kSending;
  note(number, true);
  parcel.route = route;
  const int64_t bytes = wire_bytes(parcel.wire_bytes);
  const auto token = static_cast<uint64_t>(number);
  parcel.transfer = network_->start({route, bytes, token, parcel.rate_cap, parcel.extra_latency});
  parcel.carried = static_cast<double>(network_->carried_bytes(route, bytes));
  if (watcher_ != nullptr) watcher_->on_begin(number);
  if (listener_ != nullptr) tell(control::kFlowStart, number, parcel);
}

void Carrier::resume(int32_t number, Parcel& parcel, network::RouteId route, SimTime started) {
  parcel.state = ParcelState::kSending;
  note(number, true);
  parcel.route = route;
  const int64_t bytes = wire_bytes(parcel.wire_bytes);
  const auto token = static_cast<uint64_t>(number);
  parcel.transfer = network_->resume({route, bytes, token, parcel.rate_cap, parcel.extra_latency}, started);
  parcel.carried = static_cast<double>(bytes);
}

void Carrier::deliver_at(int32_t number, Parcel& parcel, SimTime time) {
  parcel.state = ParcelState::kSent;
  queue_.schedule(time, Priority::kNormal, &late_arrivals_, static_cast<uint64_t>(number));
}

void Carrier::tell(control::EventKind kind, int32_t number, const Parcel& parcel, std::vector<int32_t> links,
                   std::vector<int32_t> left) {
  if (parcel.has_tree) return;
  const CarrierClient::Ends ends = client_.ends_of(number);
  const CarrierClient::Purpose purpose = client_.purpose_of(number);
  control::Event event;
  event.kind = kind;
  event.job = purpose.job;
  event.iteration = purpose.iteration;
  event.category = purpose.category;
  event.src = ends.src;
  event.dst = ends.dst;
  event.bytes = parcel.bytes;
  event.flow = number;
  event.links = std::move(links);
  event.left = std::move(left);
  listener_->tell(event);
}

int64_t Carrier::cut(int32_t number) {
  Parcel& parcel = client_.parcel(number);
  note(number, false);
  if (watcher_ != nullptr) watcher_->on_end(number);
  if (std::exchange(parcel.state, ParcelState::kNone) != ParcelState::kSending) return 0;
  const double crossed = parcel.carried - backlog(parcel);
  network_->cancel(parcel.transfer);
  client_.count_wire(parcel, crossed, wire_);
  const double share = parcel.carried > 0 ? crossed / parcel.carried : 0;
  const auto sent = static_cast<int64_t>(static_cast<double>(parcel.bytes) * share);
  if (listener_ != nullptr) tell(control::kFlowEnd, number, parcel);
  return std::min(parcel.bytes, sent);
}

bool Carrier::cut_sent(int32_t number) {
  Parcel& parcel = client_.parcel(number);
  if (!walks_packets_) return false;
  parcel.state = ParcelState::kNone;
  network_->cancel(parcel.transfer);
  return true;
}

void Carrier::move(int32_t number) {
  Parcel& parcel = client_.parcel(number);
  const bool is_waiting = parcel.state == ParcelState::kWaiting;
  const bool is_sent = parcel.state == ParcelState::kSent && walks_packets_;
  if (!is_waiting && !is_sent && parcel.state != ParcelState::kSending) return;
  const network::RouteId route = client_.route_of(number);
  if (route == network::kNoRoute) return;
  if (is_waiting) return start(number, parcel, route);
  if (is_sent) return network_->set_route(parcel.transfer, route);
  take(number, parcel, route);
}

bool Carrier::move_onto(int32_t number, const routing::Route& route) {
  if (number < 0 || number >= client_.num_parcels()) return false;
  Parcel& parcel = client_.parcel(number);
  const bool is_waiting = parcel.state == ParcelState::kWaiting;
  if (parcel.has_tree || (!is_waiting && parcel.state != ParcelState::kSending)) return false;
  const network::RouteId id = client_.add_route(number, route);
  if (is_waiting) {
    start(number, parcel, id);
  } else {
    take(number, parcel, id);
  }
  return true;
}

// What is left of a parcel that is being sent goes on over another route.
void Carrier::take(int32_t number, Parcel& parcel, network::RouteId route) {
  if (route == parcel.route) return;
  std::vector<int32_t> before = listener_ != nullptr ? network_->links_of(parcel.route) : std::vector<int32_t>();
  parcel.route = route;
  parcel.carried -= backlog(parcel);
  network_->set_route(parcel.transfer, route);
  parcel.carried += backlog(parcel);  // what is left may be split over planes anew, in whole bytes
  if (watcher_ != nullptr) watcher_->on_change();
  if (listener_ == nullptr) return;
  std::vector<int32_t> links = network_->links_of(route);
  if (links != before) tell(control::kMove, number, parcel, std::move(links), std::move(before));
}

void Carrier::move(int32_t src, int32_t dst) {
  client_.on_new_route(src, dst);
  for (int32_t number = 0; number < client_.num_parcels(); ++number) {
    const ParcelState state = client_.parcel(number).state;
    const bool is_there = state == ParcelState::kWaiting || state == ParcelState::kSending;
    if (!is_there && !(walks_packets_ && state == ParcelState::kSent)) continue;
    const CarrierClient::Ends ends = client_.ends_of(number);
    if (ends.src == src && ends.dst == dst) move(number);
  }
}

void Carrier::move_all() {
  client_.on_new_offers();
  for (int32_t number = 0; number < client_.num_parcels(); ++number) move(number);
}

void Carrier::on_sent(uint64_t token) {
  const auto number = static_cast<int32_t>(token);
  Parcel& parcel = client_.parcel(number);
  parcel.state = ParcelState::kSent;
  note(number, false);
  client_.count_wire(parcel, parcel.carried, wire_);
  if (watcher_ != nullptr) watcher_->on_end(number);
  if (listener_ != nullptr) tell(control::kFlowEnd, number, parcel);
  client_.on_sent(number);
}

bool Carrier::stands_still(int32_t number) {
  const Parcel& parcel = client_.parcel(number);
  if (parcel.state == ParcelState::kWaiting) return true;
  return parcel.state == ParcelState::kSending && network_->stands_since(parcel.transfer) < SimTime::never();
}

void Carrier::on_delivered(uint64_t token) {
  const auto number = static_cast<int32_t>(token);
  client_.parcel(number).state = ParcelState::kArrived;
  client_.on_delivered(number);
}

std::vector<control::Backlog> Carrier::backlogs() const {
  std::vector<int32_t> numbers;
  for (int32_t number = 0; number < static_cast<int32_t>(is_under_way_.size()); ++number) {
    if (is_under_way_[number] != 0) numbers.push_back(number);
  }
  std::vector<control::Backlog> found;
  found.reserve(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i + kFetchedAhead < numbers.size()) __builtin_prefetch(&client_.parcel(numbers[i + kFetchedAhead]));
    const int32_t number = numbers[i];
    const Parcel& parcel = client_.parcel(number);
    if (parcel.has_tree) continue;
    const bool is_sending = parcel.state == ParcelState::kSending;
    const double left = is_sending && parcel.carried > 0 ? backlog(parcel) / parcel.carried : 1;
    const CarrierClient::Ends ends = client_.ends_of(number);
    found.push_back({ends.src, ends.dst, static_cast<double>(parcel.bytes) * left});
  }
  return found;
}

std::vector<control::LinkBytes> Carrier::link_bytes_of(int32_t number) const {
  const Parcel& parcel = client_.parcel(number);
  std::vector<control::LinkBytes> found;
  if (parcel.state != ParcelState::kSending) return found;
  for (const routing::LinkShare& one : network_->shares_of(parcel.route)) {
    found.push_back({one.link, parcel.carried * one.share});
  }
  return found;
}

void Carrier::count_under_way() {
  for (int32_t number = 0; number < client_.num_parcels(); ++number) {
    const Parcel& parcel = client_.parcel(number);
    if (parcel.state != ParcelState::kSending) continue;
    client_.count_wire(parcel, parcel.carried - backlog(parcel), wire_);
  }
}

void Carrier::throw_if_stuck() {
  for (int32_t number = 0; number < client_.num_parcels(); ++number) {
    const Parcel& parcel = client_.parcel(number);
    const bool is_under_way =
        parcel.state == ParcelState::kSending || (parcel.state == ParcelState::kSent && walks_packets_);
    if (is_under_way && client_.route_of(number) == network::kNoRoute) {
      const SimTime stopped = std::min(queue_.now(), network_->stands_since(parcel.transfer));
      ROSTAM_THROW(NoRouteError, client_.describe(number)
                                     << " stopped at " << stopped.seconds() << " s with " << backlog(parcel)
                                     << " bytes left, and no path for them: parts have failed on "
                                        "all");
    }
    if (parcel.state == ParcelState::kWaiting) {
      ROSTAM_THROW(NoRouteError, client_.describe(number) << " waits for a route at " << queue_.now().seconds()
                                                          << " s, and nothing will give it one: a controller must set "
                                                             "it");
    }
    if (parcel.state != ParcelState::kSending || !network_->is_endless(parcel.transfer)) continue;
    ROSTAM_THROW(ConfigError, client_.describe(number)
                                  << " has " << backlog(parcel) << " bytes left at " << queue_.now().seconds()
                                  << " s and would not be through by the end of simulated time, 106 days; look for a "
                                     "lost unit in a bandwidth or size");
  }
}

}  // namespace rostam::runtime
