#include "runtime/lone_collectives.h"

#include <algorithm>
#include <limits>

#include "sim/checked.h"

namespace rostam::runtime {

namespace {

constexpr size_t kMaxHops = size_t{1} << 22;  // beyond it routes cost more than the messages that they save

// Whether one device stands for all ranks of a group, of which there are several.
bool is_lone(const WeightedSystem& system, int32_t device, int32_t group) {
  if (group < 0) return false;
  const std::vector<int32_t>& members = system.graph->groups[group];
  return members.size() >= 2 && std::all_of(members.begin(), members.end(),
                                            [&](int32_t member) { return system.device_stand_in[member] == device; });
}

}  // namespace

bool LoneCollectives::Kind::operator==(const Kind& other) const {
  const auto is_same = [](const auto& a, const auto& b) {
    return a.first == b.first && std::equal(a.second.begin(), a.second.end(), b.second.begin(), b.second.end(),
                                            [](const Step& one, const Step& two) {
                                              return one.send == two.send && one.num_chunks == two.num_chunks;
                                            });
  };
  return bytes_per_s == other.bytes_per_s && latencies == other.latencies &&
         is_inside_server == other.is_inside_server &&
         std::equal(steps.begin(), steps.end(), other.steps.begin(), other.steps.end(), is_same);
}

LoneCollectives::LoneCollectives(const RunnerParts& parts, StepwiseRunner& stepwise, const routing::RouteTable& routes,
                                 const RingTable& rings, bool takes_any)
    : parts_(parts),
      stepwise_(stepwise),
      routes_(routes),
      ends_(*this, &LoneCollectives::end, &LoneCollectives::fetch_end) {
  const WeightedSystem& system = parts_.system;
  if (!takes_any || !system.is_folded) return;
  owner_.assign(system.links.size(), kNone);
  for (const workload::Device& device : system.devices) {
    first_slot_.push_back(index_.size());
    index_.resize(index_.size() + device.slots.size(), kNone);
  }
  workload::ChannelLister lister(*system.graph);
  size_t num_hops = 0;
  for (int32_t d = 0; d < static_cast<int32_t>(system.devices.size()); ++d) {
    const auto& uses = lister.uses_of(system.devices[d].program);
    for (int32_t slot = 0; slot < static_cast<int32_t>(uses.size()); ++slot) {
      const bool is_ring = rings.rank_of(d, slot).ring != RingTable::kNone;
      if (is_ring || !is_lone(system, d, system.devices[d].slots[slot].group)) continue;
      if (!add_group(d, slot, uses[slot], rings, num_hops)) continue;
      index_[first_slot_[d] + static_cast<size_t>(slot)] = static_cast<int32_t>(groups_.size()) - 1;
    }
  }
  if (groups_.empty()) index_.clear();
}

// Adds the group of a slot, if each of its schedules sends and awaits one message in every step, on links of its own.
bool LoneCollectives::add_group(int32_t device, int32_t slot, const std::vector<int32_t>& schedules,
                                const RingTable& rings, size_t& num_hops) {
  Group group;
  group.device = device;
  group.slot = slot;
  Steps steps;
  for (const int32_t schedule : schedules) {
    if (schedule < 0 || !add_steps(schedule, num_hops, group, steps)) return false;
  }
  if (group.sends.empty() || !claim_links(rings, group)) return false;
  group.loads.resize(group.sends.size());
  group.kind = kind_of(group, std::move(steps));
  groups_.push_back(std::move(group));
  return true;
}

bool LoneCollectives::add_steps(int32_t schedule_id, size_t& num_hops, Group& group, Steps& steps) const {
  const WeightedSystem& system = parts_.system;
  const collectives::Schedule& schedule = *system.graph->schedules[schedule_id];
  const workload::SlotBinding& binding = system.devices[group.device].slots[group.slot];
  const std::vector<int32_t>& members = system.graph->groups[binding.group];
  if (schedule.shape().lead != 0 || schedule.shape().has_ordered_arrivals) return false;
  steps.emplace_back(schedule_id, std::vector<Step>());
  std::vector<collectives::Transfer> transfers;
  for (int32_t step = 0; step < schedule.shape().num_steps; ++step) {
    transfers.clear();
    schedule.messages(binding.rank, step, transfers);
    if (transfers.size() != 1 || schedule.num_receives(binding.rank, step) != 1) return false;
    const int32_t peer = members[transfers.front().peer];
    const auto is_to_peer = [peer](const Send& send) { return send.peer == peer; };
    auto known = std::find_if(group.sends.begin(), group.sends.end(), is_to_peer);
    if (known == group.sends.end()) {
      Send send;
      send.peer = peer;
      send.route = parts_.messenger.routes().make_route(group.device, group.slot, peer);
      num_hops += send.route.links.size();
      send.bytes_per_s = std::numeric_limits<double>::infinity();
      for (const routing::LinkShare& hop : send.route.links) {
        send.bytes_per_s = std::min(send.bytes_per_s, system.links[hop.link].bytes_per_s / hop.share);
      }
      const bool has_rate = send.bytes_per_s > 0 && send.bytes_per_s < std::numeric_limits<double>::infinity();
      if (!has_rate || !send.route.lanes.empty() || num_hops > kMaxHops) return false;
      group.sends.push_back(std::move(send));
      known = group.sends.end() - 1;
    }
    steps.back().second.push_back(
        {static_cast<int32_t>(known - group.sends.begin()), int64_t{transfers.front().num_chunks}});
  }
  return true;
}

int32_t LoneCollectives::kind_of(const Group& group, Steps&& steps) {
  Kind kind;
  kind.steps = std::move(steps);
  for (const Send& send : group.sends) {
    kind.bytes_per_s.push_back(send.bytes_per_s);
    kind.latencies.push_back(send.route.latency);
    kind.is_inside_server.push_back(parts_.system.is_inside_server(group.device, send.peer));
  }
  const auto known = std::find(kinds_.begin(), kinds_.end(), kind);
  const auto index = static_cast<int32_t>(known - kinds_.begin());
  if (known == kinds_.end()) kinds_.push_back(std::move(kind));
  return index;
}

// Makes the links of a group, the next one, its own, if no other group or ring has them and none may change.
bool LoneCollectives::claim_links(const RingTable& rings, const Group& group) {
  for (const Send& send : group.sends) {
    for (const routing::LinkShare& hop : send.route.links) {
      if (owner_[hop.link] != kNone || rings.owner_of(hop.link) != RingTable::kNone) return false;
    }
  }
  for (const Send& send : group.sends) {
    for (const routing::LinkShare& hop : send.route.links) owner_[hop.link] = static_cast<int32_t>(groups_.size());
  }
  return true;
}

// When the steps of what a rank exchanges begin and end; worked out once for each kind of group.
int32_t LoneCollectives::find_timing(Kind& kind, const Participation& part) const {
  const int32_t schedule = part.body->schedule, protocol_id = part.body->protocol;
  for (size_t k = 0; k < kind.timings.size(); ++k) {
    const Timing& known = kind.timings[k];
    if (known.schedule == schedule && known.protocol == protocol_id && known.chunk_bytes == part.chunk_bytes) {
      return static_cast<int32_t>(k);
    }
  }
  const workload::Protocol* protocol =
      protocol_id < 0 ? nullptr : &parts_.system.graph->protocols[static_cast<size_t>(protocol_id)];
  Timing timing{schedule, protocol_id, part.chunk_bytes, true, {}};
  SimTime end;
  double end_ps = 0;
  const auto is_own = [schedule](const auto& one) { return one.first == schedule; };
  for (const Step& step : std::find_if(kind.steps.begin(), kind.steps.end(), is_own)->second) {
    const bool is_inside = kind.is_inside_server[step.send] != 0;
    double bytes_per_s = kind.bytes_per_s[step.send];
    SimTime latency = kind.latencies[step.send];
    Leg leg;
    leg.send = step.send;
    leg.num_chunks = step.num_chunks;
    leg.bytes = checked_multiply(part.chunk_bytes, step.num_chunks);
    leg.wire_bytes = routes_.wire_bytes(protocol == nullptr ? leg.bytes : protocol->wire_bytes(leg.bytes));
    if (protocol != nullptr) {
      if (is_inside) bytes_per_s = std::min(bytes_per_s, protocol->server_rate / routes_.num_alike());
      latency += is_inside ? protocol->server_hop : protocol->network_hop;
    }
    end_ps += transmit_ps(static_cast<double>(leg.wire_bytes), bytes_per_s) + static_cast<double>(latency.ps());
    timing.fits_clock = end_ps < kMaxPs / 2;
    if (!timing.fits_clock) break;
    leg.start = end;
    leg.sent = end + transmit_time(static_cast<double>(leg.wire_bytes), bytes_per_s);
    leg.arrival = end = leg.sent + latency;
    timing.legs.push_back(leg);
  }
  kind.timings.push_back(std::move(timing));
  return static_cast<int32_t>(kind.timings.size()) - 1;
}

void LoneCollectives::join(const TaskRef& task, int32_t slot, uint32_t occurrence) {
  Group& group = groups_[index_of_slot(task.device, slot)];
  if (group.num_visitors > 0) return stepwise_.advance(task.device, slot, occurrence);
  Participation& part = parts_.participations.at(task.device, slot, occurrence);
  const int32_t timing = find_timing(kinds_[group.kind], part);
  const Timing& found = kinds_[group.kind].timings[timing];
  const bool fits_clock = found.fits_clock && static_cast<double>(parts_.queue.now().ps()) < kMaxPs / 2;
  if (!fits_clock || found.legs.empty()) return stepwise_.advance(task.device, slot, occurrence);
  begin(group, part, timing, occurrence, 0);
}

// From the first of these legs on the collective goes without messages.
void LoneCollectives::begin(Group& group, Participation& part, int32_t timing, uint32_t occurrence, size_t first_leg) {
  const std::vector<Leg>& legs = kinds_[group.kind].timings[timing].legs;
  group.is_quiet = part.is_quiet = true;
  group.timing = timing;
  group.first_leg = first_leg;
  group.occurrence = occurrence;
  group.start = parts_.queue.now() - legs[first_leg].start;
  part.quiet_end = std::max(group.start + legs.back().arrival, part.joined + parts_.options.min_collective_time);
  parts_.queue.schedule(part.quiet_end, Priority::kNormal, &ends_, pack(group.device, group.slot));
}

bool LoneCollectives::goes_on_quietly(const Message& message) {
  Group& group = groups_[index_of_slot(message.target, message.slot)];
  if (group.num_visitors > 0) return false;
  Participation& part = parts_.participations.at(message.target, message.slot, message.occurrence);
  const int32_t timing = find_timing(kinds_[group.kind], part);
  const Timing& found = kinds_[group.kind].timings[timing];
  const auto next = static_cast<size_t>(message.step) + 1;
  const bool fits_clock = found.fits_clock && static_cast<double>(parts_.queue.now().ps()) < kMaxPs / 2;
  if (!fits_clock || next >= found.legs.size()) return false;
  part.pending_sends = 0;
  begin(group, part, timing, message.occurrence, next);
  return true;
}

void LoneCollectives::fetch_end(uint64_t device_and_slot) const {
  const int32_t d = high(device_and_slot), slot = low(device_and_slot);
  parts_.participations.fetch(d, slot);
  parts_.sink.fetch(d, slot + 1);
  __builtin_prefetch(&groups_[index_of_slot(d, slot)], 1);
}

// The device is through, unless its collective was disturbed since this was planned.
void LoneCollectives::end(uint64_t device_and_slot) {
  const int32_t d = high(device_and_slot), slot = low(device_and_slot);
  Participation* part = parts_.participations.front(d, slot);
  if (part == nullptr || !part->is_quiet || part->quiet_end != parts_.queue.now()) return;
  Group& group = groups_[index_of_slot(d, slot)];
  const std::vector<Leg>& legs = timing_of(group).legs;
  const bool is_whole = group.first_leg == 0;
  for (size_t k = group.first_leg; k < legs.size(); ++k) {
    const Leg& leg = legs[k];
    parts_.ledger.count_sent(d, part->iteration, part->category, leg.bytes);
    parts_.ledger.count_received(d, part->iteration, part->category, leg.bytes);
    part->chunks_sent += leg.num_chunks;
    if (is_whole) continue;
    group.loads[leg.send].bytes += static_cast<double>(leg.wire_bytes);
    group.loads[leg.send].busy_ps += (leg.sent - leg.start).ps();
  }
  if (is_whole) {
    const auto timing = static_cast<size_t>(group.timing);
    if (group.num_done.size() <= timing) group.num_done.resize(timing + 1, 0);
    ++group.num_done[timing];
  }
  group.is_quiet = false;
  stepwise_.complete(d, slot);
}

int32_t LoneCollectives::make_message(const Group& group, const Participation& part, const Leg& leg, int32_t step) {
  const int32_t index = parts_.messenger.make(group.device, group.slot, group.sends[leg.send].peer);
  parts_.messenger.load(index, leg.bytes, part.body->protocol);
  Message& message = parts_.messenger[index];
  message.step = step;
  message.occurrence = group.occurrence;
  message.category = part.category;
  message.iteration = part.iteration;
  message.is_synchronous = parts_.system.graph->schedules[part.body->schedule]->shape().is_synchronous;
  message.origin = part.origin;
  return index;
}

// A message of others is about to start on the group's links: what is under way there goes on message by message.
void LoneCollectives::disturb(Group& group) {
  if (!group.is_quiet) return;
  const std::vector<Leg>& legs = timing_of(group).legs;
  const SimTime since = parts_.queue.now() - group.start;
  if (legs.back().arrival <= since) return;  // it is off its links
  Participation& part = parts_.participations.at(group.device, group.slot, group.occurrence);
  size_t step = group.first_leg;
  for (size_t k = step; k < legs.size() && legs[k].start <= since; ++k) {
    const Leg& leg = legs[k];
    step = k;
    part.chunks_sent += leg.num_chunks;
    Load& load = group.loads[leg.send];
    load.busy_ps += (std::min(leg.sent, since) - leg.start).ps();
    if (leg.sent <= since) {
      load.bytes += static_cast<double>(leg.wire_bytes);
      parts_.ledger.count_sent(group.device, part.iteration, part.category, leg.bytes);
    }
    if (leg.arrival <= since) parts_.ledger.count_received(group.device, part.iteration, part.category, leg.bytes);
  }
  group.is_quiet = part.is_quiet = false;
  part.step = static_cast<int32_t>(step);
  part.is_step_started = true;
  const Leg& present = legs[step];
  const int32_t message = make_message(group, part, present, part.step);
  const bool is_sending = present.sent > since;
  part.pending_sends = is_sending || parts_.messenger[message].is_synchronous ? 1 : 0;
  if (is_sending) {
    parts_.messenger.resume(message, group.start + present.start);
  } else {
    parts_.messenger.deliver_at(message, group.start + present.arrival);
  }
}

void LoneCollectives::on_new_route(network::RouteId route, const routing::Route& links, int32_t device, int32_t slot) {
  if (groups_.empty()) return;
  if (crossings_.size() <= route) crossings_.resize(route + 1);
  FewList<int32_t, 4>& crossed = crossings_[route];
  crossed.clear();
  const int32_t own = index_of_slot(device, slot);
  for (const routing::LinkShare& hop : links.links) {
    const int32_t owner = owner_[hop.link];
    if (owner == kNone || owner == own || std::find(crossed.begin(), crossed.end(), owner) != crossed.end()) continue;
    crossed.push_back(owner);
  }
}

void LoneCollectives::before_send(network::RouteId route) {
  if (groups_.empty()) return;
  for (const int32_t crossed : crossings_[route]) {
    disturb(groups_[crossed]);
    ++groups_[crossed].num_visitors;
  }
}

void LoneCollectives::after_sent(network::RouteId route) {
  if (groups_.empty()) return;
  for (const int32_t crossed : crossings_[route]) --groups_[crossed].num_visitors;
}

template <typename Visit>
void LoneCollectives::for_each_load(SimTime now, Visit visit) const {
  for (const Group& group : groups_) {
    const std::vector<Timing>& timings = kinds_[group.kind].timings;
    for (size_t k = 0; k < group.num_done.size(); ++k) {
      for (const Leg& leg : timings[k].legs) {
        const SimTime busy = (leg.sent - leg.start).times(group.num_done[k]);
        visit(group, group.sends[leg.send],
              static_cast<double>(leg.wire_bytes) * static_cast<double>(group.num_done[k]), busy.ps());
      }
    }
    for (size_t k = 0; k < group.loads.size(); ++k) {
      visit(group, group.sends[k], group.loads[k].bytes, group.loads[k].busy_ps);
    }
    if (!group.is_quiet) continue;
    const std::vector<Leg>& legs = timing_of(group).legs;
    const SimTime since = now - group.start;
    for (size_t k = group.first_leg; k < legs.size() && legs[k].start < since; ++k) {
      const SimTime passed = std::min(legs[k].sent, since) - legs[k].start, whole = legs[k].sent - legs[k].start;
      const auto bytes = static_cast<double>(legs[k].wire_bytes);
      const double share = passed == whole ? 1.0 : passed.seconds() / whole.seconds();
      visit(group, group.sends[legs[k].send], bytes * share, passed.ps());
    }
  }
}

void LoneCollectives::add_loads(SimTime now, network::NetworkStats& stats) const {
  for_each_load(now, [&stats](const Group&, const Send& send, double bytes, int64_t busy_ps) {
    for (const routing::LinkShare& hop : send.route.links) {
      stats.link_bytes[hop.link] += bytes * hop.share;
      stats.link_busy_s[hop.link] += static_cast<double>(busy_ps) * 1e-12;
    }
  });
}

void LoneCollectives::count_carried(SimTime now) {
  for_each_load(now, [this](const Group& group, const Send&, double bytes, int64_t) {
    parts_.messenger.carrier().wire().count(group.device, group.device, bytes);
  });
}

}  // namespace rostam::runtime
