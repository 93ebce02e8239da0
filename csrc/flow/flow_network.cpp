#include "flow/flow_network.h"

#include <algorithm>
#include <cmath>

namespace rostam::flow {

namespace {

constexpr double kGuardSlack = 1e-9;  // a link that guards leave this much short of full is out of reach of rounding
constexpr size_t kFewLinks = 12;      // a flow over no more has no guard: guarding it costs more than it saves
constexpr double kPeakSlack = 1e-10;  // sums of peaks may be off by rounding; capacity is checked to 1e-9

}  // namespace

using network::EngineLink;
using network::RouteId;
using network::Transfer;
using network::TransferId;

FlowNetwork::FlowNetwork(EventQueue& queue, const network::LinkTable& links, network::NetworkClient& client)
    : queue_(queue), client_(client), completions_(*this), deliveries_(*this), solves_(*this) {
  links_.resize(static_cast<size_t>(links.size()));
  crowds_.resize(links_.size());
  bound_.resize(links_.size());
  for (int32_t l = 0; l < links.size(); ++l) links_[l].capacity = links[l].bytes_per_s;
}

RouteId FlowNetwork::add_route(const routing::Route& route, uint64_t name) {
  for (const routing::LinkShare& hop : route.links) {
    ROSTAM_CHECK(hop.link >= 0 && hop.link < num_links() && !links_[hop.link].is_removed && hop.share > 0,
                 "route over link " << hop.link << " with share " << hop.share);
  }
  if (free_routes_.empty()) {
    free_routes_.push_back(static_cast<RouteId>(routes_.size()));
    routes_.emplace_back();
  }
  const RouteId id = free_routes_.back();
  free_routes_.pop_back();
  RouteState& state = routes_[id];
  hops_.assign(route.links, state.links);
  state.latency = route.latency;
  state.name = name;
  state.src = route.src;
  state.dst = route.dst;
  state.bytes = 0;
  return id;
}

std::vector<int32_t> FlowNetwork::links_of(RouteId route) const {
  std::vector<int32_t> links;
  for (const routing::LinkShare& hop : routes_[route].links) links.push_back(hop.link);
  return links;
}

std::vector<routing::LinkShare> FlowNetwork::shares_of(RouteId route) const {
  std::vector<routing::LinkShare> shares;
  for (const routing::LinkShare& hop : routes_[route].links) shares.push_back(hop);
  return shares;
}

void FlowNetwork::remove_route(RouteId id) {
  RouteState& route = routes_[id];
  removed_bytes_.resize(links_.size(), 0.0);
  for (const routing::LinkShare& hop : route.links) removed_bytes_[hop.link] += route.bytes * hop.share;
  route.links.clear();
  route.bytes = 0;
  free_routes_.push_back(id);
}

uint32_t FlowNetwork::new_flow(const Transfer& transfer) {
  uint32_t id;
  if (free_flows_.empty()) {
    id = static_cast<uint32_t>(flows_.size());
    flows_.emplace_back();
    paces_.emplace_back();
  } else {
    id = free_flows_.back();
    free_flows_.pop_back();
  }
  FlowState& flow = flows_[id];
  flow.bytes = flow.remaining = static_cast<double>(transfer.bytes);
  paces_[id].rate = 0;
  flow.rate_cap = transfer.rate_cap;
  flow.extra_latency = transfer.extra_latency;
  flow.token = transfer.token;
  flow.updated = flow.started = queue_.now();
  flow.finish = transfer.bytes > 0 ? SimTime::never() : queue_.now();
  flow.event_time = SimTime::never();
  flow.route = transfer.route;
  flow.is_active = true;
  ++num_active_;
  return id;
}

TransferId FlowNetwork::start(const Transfer& transfer) {
  const uint32_t id = new_flow(transfer);
  if (transfer.bytes <= 0) {
    // Nothing to send: no links, but the client hears of it after this call like of any other flow.
    expect_completion(id);
    return id;
  }
  attach(id);
  if (tolerance_ > 0 && is_free(id)) {
    set_rate(id, flows_[id].peak);  // it changes no other flow's rate
    return id;
  }
  new_flows_.push_back(id);
  request_solve(tolerance_ > 0 ? latest_effect(expected_s(id)) : queue_.now());
  return id;
}

TransferId FlowNetwork::resume(const Transfer& transfer, SimTime started) {
  const uint32_t id = new_flow(transfer);
  attach(id);
  FlowState& flow = flows_[id];
  paces_[id].rate = flow.peak;
  set_guard(id, flow.peak);
  flow.updated = flow.started = started;
  flow.finish = transmit_end(started, flow.bytes, flow.peak);
  expect_completion(id);
  return id;
}

double FlowNetwork::peak_of(const FlowState& flow) const {
  double peak = flow.rate_cap;
  for (const routing::LinkShare& hop : routes_[flow.route].links) {
    peak = std::min(peak, links_[hop.link].capacity / hop.share);
  }
  return peak;
}

// The links of a flow lie all over memory: asks for all of them at once, before they are used one after another.
void FlowNetwork::fetch_links(uint32_t id, bool with_flows) const {
  const Hops& hops = routes_[flows_[id].route].links;
  if (hops.size() > kFewLinks) return;  // more than can be under way at once
  for (const routing::LinkShare& hop : hops) {
    __builtin_prefetch(&links_[hop.link], 1);
    if (with_flows) __builtin_prefetch(&crowds_[hop.link], 1);
  }
}

void FlowNetwork::attach(uint32_t id) {
  FlowState& flow = flows_[id];
  fetch_links(id, true);
  const auto& hops = routes_[flow.route].links;
  const double rate = paces_[id].rate;
  flow.peak = peak_of(flow);
  if (flow.num_places < hops.size()) {
    flow.first_place = static_cast<uint32_t>(places_.size());
    flow.num_places = static_cast<uint32_t>(hops.size());
    places_.resize(places_.size() + hops.size());
  }
  flow.is_attached = true;
  // A new flow's guard waits for its first rate.
  const double guard = rate > 0 || !is_guarded(id) ? std::max(flow.peak, rate) : 0;
  paces_[id].guard = guard;
  for (uint32_t h = 0; h < hops.size(); ++h) {
    LinkState& link = links_[hops[h].link];
    Crowd& crowd = crowds_[hops[h].link];
    if (crowd.members.empty()) {
      crowd.busy_ps -= queue_.now().ps();
      // What rounding left of peaks may have kept a link without capacity binding: its load would then keep the rate
      // that this flow brings along, and a flow that can bind nothing gets its next one without a look at its links.
      link.peak_load = link.guard_load = 0;
      link.is_binding = false;
    }
    link.peak_load += flow.peak * hops[h].share;
    link.guard_load += guard * hops[h].share;
    places_[flow.first_place + h] = crowd.members.size();
    crowd.members.push_back({id, h, hops[h].share});
    if (link.is_binding) {
      link.load.add(rate * hops[h].share);
    } else {
      update_binding(hops[h].link);
    }
  }
}

// Marks the links that were bottlenecks of others: those may now run faster.
void FlowNetwork::detach(uint32_t id) {
  FlowState& flow = flows_[id];
  if (!flow.is_attached) return;  // nothing to send
  flow.is_attached = false;
  fetch_links(id, true);
  set_bottleneck(id, kNoLink);
  const SimTime latest = latest_effect((queue_.now() - flow.started).seconds());
  const auto& hops = routes_[flow.route].links;
  const double rate = paces_[id].rate;
  for (uint32_t h = 0; h < hops.size(); ++h) {
    LinkState& link = links_[hops[h].link];
    Crowd& crowd = crowds_[hops[h].link];
    link.peak_load -= flow.peak * hops[h].share;
    link.guard_load -= paces_[id].guard * hops[h].share;
    const Member moved = crowd.members.back();
    const uint32_t place = places_[flow.first_place + h];
    crowd.members[place] = moved;
    places_[flows_[moved.flow].first_place + moved.hop] = place;
    crowd.members.pop_back();
    if (link.is_binding) {
      link.load.subtract(rate * hops[h].share);
      update_binding(hops[h].link);
    }
    if (crowd.members.empty()) crowd.busy_ps += queue_.now().ps();
    if (!bound_[hops[h].link].empty()) mark_dirty(hops[h].link, latest);
  }
}

bool FlowNetwork::may_bind(const LinkState& link) const { return link.peak_load > link.capacity * (1 + kPeakSlack); }

// A link that could carry all its flows at their peaks binds none of them, nor does one that their guards do not fill.
void FlowNetwork::update_binding(int32_t index) {
  LinkState& link = links_[index];
  const bool was_binding = link.is_binding;
  link.is_binding = may_bind(link) && link.guard_load > link.capacity * (1 - kGuardSlack);
  if (!link.is_binding || was_binding) return;
  ++num_bindings_;
  link.load = RateSum();
  for (const Member& member : crowds_[index].members) link.load.add(paces_[member.flow].rate * member.share);
}

// Where a flow has few links, looking at all of them is the faster way.
bool FlowNetwork::is_guarded(uint32_t id) const { return routes_[flows_[id].route].links.size() > kFewLinks; }

void FlowNetwork::set_guard(uint32_t id, double guard) {
  const double change = guard - paces_[id].guard;
  paces_[id].guard = guard;
  for (const routing::LinkShare& hop : routes_[flows_[id].route].links) {
    links_[hop.link].guard_load += change * hop.share;
    update_binding(hop.link);
  }
}

void FlowNetwork::mark_dirty(int32_t link, SimTime latest) {
  request_solve(latest);
  if (links_[link].is_dirty) return;
  links_[link].is_dirty = true;
  dirty_links_.push_back(link);
}

void FlowNetwork::request_solve(SimTime latest) {
  if (latest >= solve_time_) return;
  solve_time_ = latest;
  queue_.schedule(latest, Priority::kSolve, &solves_, ++solve_number_);
}

void FlowNetwork::solve_if_due(uint64_t number) {
  if (number != solve_number_) return;
  solve_time_ = SimTime::never();
  solve();
}

void FlowNetwork::set_tolerance(double share) {
  if (!(share >= 0 && share < 1)) {
    ROSTAM_THROW(ConfigError, "tolerance is " << share << "; it must be in [0, 1): a share of a message's duration");
  }
  tolerance_ = share;
}

// When a change by a message of this duration has to take effect.
SimTime FlowNetwork::latest_effect(double seconds) const {
  if (tolerance_ == 0) return queue_.now();
  return queue_.now() + SimTime::from_whole_ps(std::min(std::floor(seconds * tolerance_ * 1e12), kMaxPs / 4));
}

// How long a flow would take if each of its links gave its flows shares in proportion to their peaks.
double FlowNetwork::expected_s(uint32_t id) const {
  const FlowState& flow = flows_[id];
  double crowding = 1;
  for (const routing::LinkShare& hop : routes_[flow.route].links) {
    const LinkState& link = links_[hop.link];
    if (link.capacity > 0) crowding = std::max(crowding, link.peak_load / link.capacity);
  }
  return flow.peak > 0 ? flow.bytes / flow.peak * crowding : 0;
}

// An unchanged rate leaves the flow untouched, so that its completion time does not drift by rounding.
void FlowNetwork::set_rate(uint32_t id, double rate) {
  if (rate == paces_[id].rate) return;
  settle(id);
  if (rate > paces_[id].guard) set_guard(id, rate);
  paces_[id].rate = rate;
  FlowState& flow = flows_[id];
  if (rate <= 0) {
    flow.finish = SimTime::never();
    return;
  }
  flow.finish = transmit_end(queue_.now(), std::max(flow.remaining, 1e-9), rate);
  if (flow.finish < flow.event_time) expect_completion(id);
}

// A flow that slows down keeps its earlier event, which then only looks again: shared links change their flows' rates
// with every arrival and end, and most of those changes need no event of their own.
void FlowNetwork::expect_completion(uint32_t id) {
  FlowState& flow = flows_[id];
  ++flow.version;
  flow.event_time = flow.finish;
  if (flow.finish == SimTime::never()) return;  // beyond the clock, unless its rate changes
  queue_.schedule(flow.finish, Priority::kNormal, &completions_, uint64_t{flow.version} << 32 | id);
}

double FlowNetwork::remaining_of(uint32_t id) const {
  const FlowState& flow = flows_[id];
  return std::max(0.0, flow.remaining - paces_[id].rate * (queue_.now() - flow.updated).seconds());
}

void FlowNetwork::settle(uint32_t id) {
  flows_[id].remaining = remaining_of(id);
  flows_[id].updated = queue_.now();
}

void FlowNetwork::complete(uint64_t payload) {
  const uint32_t id = static_cast<uint32_t>(payload);
  FlowState& flow = flows_[id];
  if (flow.version != static_cast<uint32_t>(payload >> 32) || !flow.is_active) return;
  if (flow.finish > queue_.now()) {
    flow.event_time = SimTime::never();
    if (flow.finish < SimTime::never()) expect_completion(id);
    return;
  }
  routes_[flow.route].bytes += flow.bytes;
  const uint64_t token = flow.token;
  const SimTime latency = routes_[flow.route].latency + flow.extra_latency;
  finish(id);
  // A delivery without latency still follows `sent`, at the same instant.
  queue_.schedule(queue_.now() + latency, Priority::kNormal, &deliveries_, token);
  client_.on_sent(token);
}

void FlowNetwork::finish(uint32_t id) {
  detach(id);
  flows_[id].is_active = false;
  ++flows_[id].version;
  free_flows_.push_back(id);
  --num_active_;
}

void FlowNetwork::cancel(TransferId id) {
  settle(id);
  const FlowState& flow = flows_[id];
  routes_[flow.route].bytes += flow.bytes - flow.remaining;
  finish(id);
}

void FlowNetwork::check_link(int32_t link) const {
  if (link < 0 || link >= num_links() || links_[link].is_removed) {
    ROSTAM_THROW(ConfigError, "link " << link << " does not exist or is removed; links are 0 to " << num_links() - 1);
  }
}

void FlowNetwork::set_capacity(int32_t link, double bytes_per_s) {
  check_link(link);
  if (!(bytes_per_s >= 0)) {
    ROSTAM_THROW(ConfigError, "capacity of link " << link << " is set to " << bytes_per_s << "; it must be >= 0");
  }
  change_capacity(link, bytes_per_s);
}

int32_t FlowNetwork::add_links(const std::vector<EngineLink>& links) {
  const int32_t first = num_links();
  links_.resize(links_.size() + links.size());
  crowds_.resize(links_.size());
  bound_.resize(links_.size());
  for (size_t l = 0; l < links.size(); ++l) links_[first + l].capacity = links[l].bytes_per_s;
  return first;
}

void FlowNetwork::remove_links(const std::vector<int32_t>& links) {
  for (const int32_t link : links) {
    check_link(link);
    change_capacity(link, 0);
    links_[link].is_removed = true;
  }
}

void FlowNetwork::change_capacity(int32_t index, double bytes_per_s) {
  links_[index].capacity = bytes_per_s;
  links_[index].is_reset = true;
  mark_dirty(index, queue_.now());
  update_binding(index);
  // Peaks of its flows change, and with them what their other links may have to bind.
  for (const Member& member : crowds_[index].members) {
    FlowState& flow = flows_[member.flow];
    const double before = flow.peak;
    flow.peak = peak_of(flow);
    for (const routing::LinkShare& hop : routes_[flow.route].links) {
      links_[hop.link].peak_load += (flow.peak - before) * hop.share;
      update_binding(hop.link);
      mark_dirty(hop.link, queue_.now());
    }
  }
}

void FlowNetwork::set_route(TransferId id, RouteId route) {
  FlowState& flow = flows_[id];
  ROSTAM_CHECK(flow.is_active && route < routes_.size(), "flow " << id << " onto route " << route);
  settle(id);
  routes_[flow.route].bytes += flow.bytes - flow.remaining;
  flow.bytes = flow.remaining;
  if (flow.remaining <= 0) return;
  detach(id);
  flow.route = route;
  attach(id);
  new_flows_.push_back(id);
  request_solve(queue_.now());
}

void FlowNetwork::set_route(TransferId id, RouteId route, double rate_cap) {
  flows_[id].rate_cap = rate_cap;
  set_route(id, route);
}

bool FlowNetwork::is_endless(TransferId id) const {
  return paces_[id].rate > 0 && flows_[id].finish == SimTime::never();
}

SimTime FlowNetwork::stands_since(TransferId id) const {
  for (const routing::LinkShare& hop : routes_[flows_[id].route].links) {
    if (links_[hop.link].capacity <= 0) return paces_[id].rate > 0 ? queue_.now() : flows_[id].updated;
  }
  return SimTime::never();
}

double FlowNetwork::backlog(TransferId id) const { return remaining_of(id); }

double FlowNetwork::bytes_waiting(int32_t link) const {
  double bytes = 0;
  for (const Member& member : crowds_[link].members) bytes += member.share * remaining_of(member.flow);
  return bytes;
}

double FlowNetwork::bytes_beside(int32_t link, double alone_s) const {
  return crowds_[link].members.empty() ? 0 : links_[link].peak_load * alone_s;
}

double FlowNetwork::backlog(int32_t src, int32_t dst) const {
  double bytes = 0;
  for (uint32_t id = 0; id < flows_.size(); ++id) {
    const RouteState& route = routes_[flows_[id].route];
    if (flows_[id].is_active && route.src == src && route.dst == dst) bytes += backlog(id);
  }
  return bytes;
}

network::NetworkStats FlowNetwork::stats() const { return {link_bytes(), link_busy_s(), num_active_, num_solves_}; }

std::vector<double> FlowNetwork::link_bytes() const {
  std::vector<double> bytes = removed_bytes_;
  bytes.resize(links_.size(), 0.0);
  for (const RouteState& route : routes_) {
    if (route.bytes == 0) continue;
    for (const routing::LinkShare& hop : route.links) bytes[hop.link] += route.bytes * hop.share;
  }
  for (uint32_t id = 0; id < flows_.size(); ++id) {
    const FlowState& flow = flows_[id];
    if (!flow.is_active) continue;
    const double sent = flow.bytes - remaining_of(id);
    for (const routing::LinkShare& hop : routes_[flow.route].links) bytes[hop.link] += sent * hop.share;
  }
  return bytes;
}

std::vector<double> FlowNetwork::link_busy_s() const {
  std::vector<double> seconds(links_.size(), 0);
  for (size_t l = 0; l < links_.size(); ++l) {
    int64_t ps = crowds_[l].busy_ps;
    if (!crowds_[l].members.empty()) ps += queue_.now().ps();
    seconds[l] = static_cast<double>(ps) * 1e-12;
  }
  return seconds;
}

}  // namespace rostam::flow
