#include "packet/packet_network.h"

#include <algorithm>
#include <utility>

namespace rostam::packet {

using network::RouteId;
using network::Transfer;
using network::TransferId;

namespace {

constexpr int32_t kMaxSpeedup = 64;

void check_options(const network::PacketOptions& options, int32_t num_needed) {
  const auto check = [](bool is_right, const char* key, int64_t value, const std::string& allowed) {
    if (!is_right) ROSTAM_THROW(ConfigError, "packets." << key << " is " << value << "; it must be " << allowed);
  };
  check(options.packet_bytes >= 1, "packet_bytes", options.packet_bytes, ">= 1");
  check(options.flit_bytes >= 0, "flit_bytes", options.flit_bytes, ">= 0");
  check(options.num_vcs == 0 || options.num_vcs == 1 || options.num_vcs >= num_needed, "num_vcs", options.num_vcs,
        "1 (all in one) or at least the " + std::to_string(num_needed) + " that the routing takes on this fabric");
  const int64_t num_vcs = options.num_vcs > 0 ? options.num_vcs : num_needed;
  check(options.buffer_bytes / num_vcs >= options.packet_bytes, "buffer_bytes", options.buffer_bytes,
        "at least packet_bytes (" + std::to_string(options.packet_bytes) + ") for each of " + std::to_string(num_vcs) +
            " virtual channels");
  check(options.crossbar_speedup >= 1 && options.crossbar_speedup <= kMaxSpeedup, "crossbar_speedup",
        options.crossbar_speedup, "from 1 to " + std::to_string(kMaxSpeedup));
  check(options.buffer_latency >= SimTime::zero(), "buffer_latency", options.buffer_latency.ps(), ">= 0");
}

}  // namespace

PacketNetwork::PacketNetwork(EventQueue& queue, const network::LinkTable& links, network::NetworkClient& client)
    : queue_(&queue), client_(client), table_(links), events_(*this), links_(links, {}) {
  reset({});
}

void PacketNetwork::set_packets(const network::PacketOptions& options) {
  ROSTAM_CHECK(routes_.empty(), "packet options are set after " << routes_.size() << " routes");
  reset(options);
}

void PacketNetwork::reset(const network::PacketOptions& options) {
  check_options(options, table_.num_virtual_channels());
  options_ = options;
  links_ = Links(table_, options);
  credits_ = Credits(links_, options_, options.buffer_parts == network::BufferParts::kShared);
  lines_.resize(links_.num_channels());
  packet_claims_.resize(links_.num_channels());
  message_claims_.resize(links_.num_channels());
  reads_.assign(links_.size() * static_cast<size_t>(options.crossbar_speedup), 0);
}

namespace {

// The steps of a route whose links are one path. Throws: ConfigError where they are not.
routing::Steps steps_of_path(const routing::Route& route, const Links& links) {
  routing::Steps steps;
  steps.nodes.push_back({route.src, 0, 0, 0});
  std::vector<routing::LinkShare> left = route.links;
  for (int32_t at = route.src; at != route.dst || !left.empty();) {
    const auto next = std::find_if(left.begin(), left.end(), [&](const routing::LinkShare& hop) {
      return links[static_cast<uint32_t>(hop.link)].src == at && hop.share == 1;
    });
    if (next == left.end()) {
      ROSTAM_THROW(ConfigError, "a route from accelerator " << route.src << " to " << route.dst
                                                            << " is set over links that are not one path; packets "
                                                               "follow one: give each link share 1, or take "
                                                               "fidelity=flow");
    }
    const auto first = static_cast<uint32_t>(steps.hops.size());
    steps.nodes.back().first_hop = first;
    steps.nodes.back().end_hop = first + 1;
    at = links[static_cast<uint32_t>(next->link)].dst;
    steps.hops.push_back({next->link, static_cast<uint32_t>(steps.nodes.size()), 0});
    steps.nodes.push_back({at, 0, first + 1, first + 1});
    left.erase(next);
  }
  return steps;
}

}  // namespace

RouteId PacketNetwork::add_route(const routing::Route& route, uint64_t name) {
  if (routes_.empty()) {
    table_ = network::LinkTable();
    const bool is_by_routing = options_.buffer_parts == network::BufferParts::kByRouting;
    if (is_by_routing && route.is_by_load) credits_ = Credits(links_, options_, true);
  }
  for (const routing::LinkShare& hop : route.links) check_link(hop.link);
  RouteState state;
  state.src = route.src;
  state.dst = route.dst;
  state.latency = route.latency;
  state.detours = route.detours;
  state.is_adaptive = route.is_adaptive;
  state.is_by_load = route.is_by_load;
  pool_.add(route.steps.nodes.empty() ? steps_of_path(route, links_) : route.steps, route.src, route.dst, links_,
            state.roots);
  int64_t walk_ps = 0;
  for (const uint32_t root : state.roots) walk_ps = std::max(walk_ps, pool_.node(root).latency_ps);
  state.overhead_ps = std::max<int64_t>(0, route.latency.ps() - walk_ps);
  state.turn = pool_.node(state.roots.front()).turn;
  routes_.push_back(std::move(state));
  names_.push_back(name);
  return static_cast<RouteId>(routes_.size() - 1);
}

std::vector<int32_t> PacketNetwork::links_of(RouteId route) const { return pool_.links_from(routes_[route].roots); }

TransferId PacketNetwork::start(const Transfer& transfer) {
  if (free_messages_.empty()) {
    free_messages_.push_back(static_cast<uint32_t>(messages_.size()));
    messages_.emplace_back();
  }
  const uint32_t id = free_messages_.back();
  free_messages_.pop_back();
  const uint32_t version = messages_[id].version;
  Message& message = messages_[id] = Message();
  message.version = version;
  message.token = transfer.token;
  message.bytes = message.left = transfer.bytes;
  message.rate_cap = transfer.rate_cap;
  message.extra_latency = transfer.extra_latency;
  message.route = transfer.route;
  message.sent_ps = message.arrived_ps = now_ps();
  message.is_active = true;
  ++num_active_;
  if (transfer.bytes <= 0) {
    schedule(now_ps(), Kind::kSent, id, version);
    const SimTime latency = routes_[transfer.route].latency + transfer.extra_latency;
    schedule((queue_->now() + latency).ps(), Kind::kDelivered, id, version);
    return id;
  }
  put_next_in_line(id);
  return id;
}

TransferId PacketNetwork::resume(const Transfer& transfer, SimTime /*started*/) {
  ROSTAM_CHECK(false, "a message of route " << transfer.route << " is resumed, but its packets are not known");
}

void PacketNetwork::tell_sent(uint32_t id) {
  Message& message = messages_[id];
  if (message.is_cancelled || message.is_sent || message.left > 0 || message.sent_ps > now_ps()) return;
  message.is_sent = true;
  --num_active_;
  client_.on_sent(message.token);
}

// Once nothing of a message is left it is delivered, or gone if it was cancelled.
void PacketNetwork::finish_if_over(uint32_t id) {
  const Message& message = messages_[id];
  if (message.left > 0 || message.in_flight > 0) return;
  if (message.is_cancelled) return free_message(id);
  const SimTime late = SimTime::from_ps(routes_[message.route].overhead_ps) + message.extra_latency;
  schedule((SimTime::from_ps(message.arrived_ps) + late).ps(), Kind::kDelivered, id, message.version);
}

void PacketNetwork::tell_delivered(uint32_t id) {
  const Message& message = messages_[id];
  ROSTAM_CHECK(message.landed == message.bytes && message.is_sent,
               "a message of " << message.bytes << " bytes is delivered, but " << message.landed << " have arrived");
  const uint64_t token = message.token;
  free_message(id);
  client_.on_delivered(token);
}

void PacketNetwork::free_message(uint32_t id) {
  messages_[id].is_active = false;
  ++messages_[id].version;
  free_messages_.push_back(id);
}

void PacketNetwork::take_out_of_line(uint32_t id) {
  Message& message = messages_[id];
  if (message.next_bytes == 0) return;
  if (message_claims_.has(id)) {
    leave_lines(message_claims_, id, message.next_bytes);
    message.next_bytes = 0;
    return;
  }
  const PathHop& hop = pool_.hop(message.hop);
  lines_.remove(hop.channel, WaitLines::kMessages, id);
  --links_[hop.link].num_waiting;
  links_[hop.link].waiting_bytes -= message.next_bytes;
  message.next_bytes = 0;
}

void PacketNetwork::cancel(TransferId id) {
  Message& message = messages_[id];
  ROSTAM_CHECK(message.is_active && !message.is_cancelled, "message " << id << " is cancelled, but is not there");
  take_out_of_line(id);
  if (!message.is_sent) --num_active_;
  message.left = 0;
  message.is_cancelled = true;
  if (message.in_flight == 0) return free_message(id);
  request_rescue();
}

void PacketNetwork::set_route(TransferId id, RouteId route) {
  Message& message = messages_[id];
  ROSTAM_CHECK(message.is_active && route < routes_.size(), "message " << id << " onto route " << route);
  if (message.left == 0 && message.in_flight == 0) return;  // it is through
  take_out_of_line(id);
  message.route = route;
  if (!message.is_due) schedule(now_ps(), Kind::kNext, id, message.version);  // the rest stays so until this returns
  message.is_due = true;
  request_rescue();
}

void PacketNetwork::check_link(int32_t link) const {
  if (link < 0 || link >= num_links() || links_[static_cast<uint32_t>(link)].is_removed) {
    ROSTAM_THROW(ConfigError, "link " << link << " does not exist or is removed; links are 0 to " << num_links() - 1);
  }
}

void PacketNetwork::set_capacity(int32_t link, double bytes_per_s) {
  check_link(link);
  if (!(bytes_per_s >= 0)) {
    ROSTAM_THROW(ConfigError, "capacity of link " << link << " is set to " << bytes_per_s << "; it must be >= 0");
  }
  const auto id = static_cast<uint32_t>(link);
  const bool worked = links_[id].works();
  links_.set_rate(id, bytes_per_s);
  if (worked == (bytes_per_s > 0)) return;
  if (!worked) wake_at(id, std::max(now_ps(), links_[id].free_at_ps));
  request_rescue();
}

int32_t PacketNetwork::add_links(const std::vector<network::EngineLink>& links) {
  const int32_t first = num_links();
  for (const network::EngineLink& link : links) links_.add(link);
  credits_.resize(links_);
  lines_.resize(links_.num_channels());
  packet_claims_.resize(links_.num_channels());
  message_claims_.resize(links_.num_channels());
  reads_.resize(links_.size() * static_cast<size_t>(options_.crossbar_speedup), 0);
  return first;
}

void PacketNetwork::remove_links(const std::vector<int32_t>& links) {
  for (const int32_t link : links) {
    set_capacity(link, 0);
    links_[static_cast<uint32_t>(link)].is_removed = true;
  }
}

double PacketNetwork::backlog(TransferId id) const { return static_cast<double>(messages_[id].left); }

double PacketNetwork::backlog(int32_t src, int32_t dst) const {
  int64_t bytes = 0;
  for (const Message& message : messages_) {
    const RouteState& route = routes_[message.route];
    if (message.is_active && route.src == src && route.dst == dst) bytes += message.left;
  }
  return static_cast<double>(bytes);
}

double PacketNetwork::bytes_waiting(int32_t link) const {
  return static_cast<double>(links_[static_cast<uint32_t>(link)].waiting_bytes);
}

network::NetworkStats PacketNetwork::stats() const {
  if (num_packets_ == 0) credits_.check_idle();
  network::NetworkStats stats;
  for (uint32_t id = 0; id < links_.size(); ++id) {
    Link link = links_[id];
    links_.count(link);
    stats.link_bytes.push_back(static_cast<double>(link.bytes));
    const int64_t ahead = std::max<int64_t>(0, link.free_at_ps - now_ps());
    stats.link_busy_s.push_back(static_cast<double>(link.busy_ps - ahead) * 1e-12);
  }
  stats.num_active = num_active_;
  return stats;
}

std::vector<routing::Stray> PacketNetwork::strays() const {
  std::vector<routing::Stray> found = lost_;
  for (const Packet& packet : packets_) {
    if (packet.bytes == 0) continue;
    found.push_back({static_cast<int32_t>(links_.link_of(packet.channel_in)), routes_[packet.route].dst,
                     static_cast<double>(packet.bytes)});
  }
  return found;
}

}  // namespace rostam::packet
