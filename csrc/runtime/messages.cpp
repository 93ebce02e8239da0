// Session, second part: ranks that take part in collectives, and point-to-point messages.
#include <algorithm>

#include "runtime/payload.h"
#include "runtime/session.h"
#include "sim/random.h"

namespace rostam::runtime {

using workload::SlotBinding;

// The part of `device` in the `occurrence`-th collective on its slot, made if it is the first to be heard of.
Session::Participation& Session::participation(int32_t device, int32_t slot, uint32_t occurrence) {
  SlotState& state = devices_[device].slots[slot];
  ROSTAM_CHECK(occurrence >= state.first_occurrence, "a message for a collective that has ended");
  const size_t place = occurrence - state.first_occurrence;
  while (state.queue.size() <= place) state.queue.emplace_back();
  return state.queue[place];
}

void Session::join_collective(int32_t d, int64_t sequence, int32_t index, CriticalPath::Ref cause) {
  const Instance& instance = instance_of(d, sequence);
  const Task& task = graph_->templates[instance.template_id].tasks[index];
  SlotState& slot = devices_[d].slots[task.slot];
  const uint32_t occurrence = slot.num_joined++;
  Participation& part = participation(d, task.slot, occurrence);
  part.is_joined = true;
  part.instance = sequence;
  part.task = index;
  part.joined = queue_.now();
  PathNode node;
  node.start = node.end = queue_.now();
  node.is_join = true;
  part.origin = path_.add(node, cause);
  change_collectives(d, 1);
  const QuietRings::Rank rank = quiet_rings_ ? quiet_rings_->rank_of(d, task.slot) : QuietRings::Rank();
  if (rank.ring != QuietRings::kNone) {
    join_ring(d, task.slot, occurrence, rank);
  } else {
    advance(d, task.slot, occurrence);
  }
}

// Moves a rank through as many steps as its sends and arrivals allow.
void Session::advance(int32_t d, int32_t slot, uint32_t occurrence) {
  Participation& part = participation(d, slot, occurrence);
  if (!part.is_joined) return;
  const Instance& instance = instance_of(d, part.instance);
  const Task& task = graph_->templates[instance.template_id].tasks[part.task];
  const collectives::Schedule& schedule = *graph_->schedules[task.schedule];
  const collectives::Shape& shape = schedule.shape();
  const int32_t rank = device_of(d).slots[slot].rank;
  while (part.step < shape.num_steps) {
    if (!part.is_step_started) start_step(d, slot, occurrence);
    if (part.pending_sends > 0) return;
    if (shape.has_ordered_arrivals) {
      if (part.ordered_arrivals <= part.step) return;
    } else {
      const bool has_any = static_cast<int32_t>(part.arrivals.size()) > part.step;
      const int64_t awaited = schedule.num_receives(rank, part.step) * folding_.multiplicity[d];
      if ((has_any ? part.arrivals[part.step] : 0) < awaited) return;
    }
    ++part.step;
    part.is_step_started = false;
  }
  const SimTime earliest = part.joined + options_.min_collective_time;
  if (earliest > queue_.now()) {
    queue_.schedule(earliest, Priority::kNormal, &collective_ends_, pack(d, slot));
  } else {
    complete_collective(pack(d, slot));
  }
}

void Session::start_step(int32_t d, int32_t slot, uint32_t occurrence) {
  Participation& part = participation(d, slot, occurrence);
  part.is_step_started = true;
  const Instance& instance = instance_of(d, part.instance);
  const Task& task = graph_->templates[instance.template_id].tasks[part.task];
  const collectives::Schedule& schedule = *graph_->schedules[task.schedule];
  const SlotBinding& binding = device_of(d).slots[slot];
  const std::vector<int32_t>& members = graph_->groups[binding.group];
  const int64_t chunk_bytes = graph_->chunk_bytes(task);
  transfers_.clear();
  schedule.sends(binding.rank, part.step, transfers_);
  part.pending_sends = static_cast<int32_t>(transfers_.size());
  for (const collectives::Transfer& transfer : transfers_) {
    const int32_t index = new_message();
    Message& message = messages_[index];
    message.source = d;
    message.peer = members[transfer.peer];
    message.destination = folding_.class_of_device[message.peer];
    message.slot = slot;
    message.step = part.step;
    message.occurrence = occurrence;
    message.bytes = checked_multiply(chunk_bytes, transfer.num_chunks);
    message.is_send = false;
    message.origin = part.origin;
    message.category = task.category;
    message.iteration = instance.iteration;
    message.is_synchronous = schedule.shape().is_synchronous;
    part.chunks_sent += transfer.num_chunks;
    if (message.is_synchronous) {
      Participation& receiver = participation(message.destination, slot, occurrence);
      const bool is_ready =
          receiver.is_joined && (receiver.step > part.step || (receiver.step == part.step && receiver.is_step_started));
      if (!is_ready) {
        receiver.deferred.push_back({index, part.step});
        continue;
      }
    }
    send_message(index);
  }
  // The receiver may be this very rank (folded): `part` stays valid, deque elements do not move on push_back.
  for (size_t k = 0; k < part.deferred.size();) {
    if (part.deferred[k].step > part.step) {
      ++k;
      continue;
    }
    const int32_t index = part.deferred[k].message;
    part.deferred.erase(part.deferred.begin() + static_cast<std::ptrdiff_t>(k));
    messages_[index].origin = part.origin;
    send_message(index);
  }
}

void Session::complete_collective(uint64_t payload) {
  const int32_t d = high(payload), slot = low(payload);
  SlotState& state = devices_[d].slots[slot];
  const Participation part = std::move(state.queue.front());
  state.queue.pop_front();
  ++state.first_occurrence;
  const Instance& instance = instance_of(d, part.instance);
  const Task& task = graph_->templates[instance.template_id].tasks[part.task];
  devices_[d].spans.push_back({part.joined, queue_.now(), task.category});
  const auto iteration = static_cast<size_t>(instance.iteration);
  if (completed_.size() <= iteration) {
    completed_.resize(iteration + 1, std::vector<Participants>(graph_->schedules.size()));
  }
  Participants& all = completed_[iteration][task.schedule];
  all.chunks_sent += part.chunks_sent * folding_.multiplicity[d];
  all.num_ranks += folding_.multiplicity[d];
  change_collectives(d, -1);
  finish_task(d, part.instance, part.task, part.origin->start, queue_.now(), part.origin);
}

int32_t Session::new_message() {
  if (free_messages_.empty()) {
    messages_.emplace_back();
    return static_cast<int32_t>(messages_.size()) - 1;
  }
  const int32_t index = free_messages_.back();
  free_messages_.pop_back();
  return index;
}

void Session::send_message(int32_t index) {
  const network::RouteId route = route_of(messages_[index].source, messages_[index].slot, messages_[index].peer);
  messages_[index].route = route;
  for (const int32_t ring : crossings_[route]) {
    disturb(ring);
    quiet_rings_->enter(ring);
  }
  Message& message = messages_[index];
  message.is_sending = true;
  message.transfer = network_->start({route, wire_bytes(message.bytes), static_cast<uint64_t>(index)});
}

// The route of a channel; hashed once a channel, as a connection's five-tuple is.
network::RouteId Session::route_of(int32_t d, int32_t slot, int32_t peer) {
  SlotState& state = devices_[d].slots[slot];
  if (state.last_peer == peer) return state.last_route;
  const workload::ChannelId channel = folding_.channels.find(d, slot, peer);
  network::RouteId& id = routes_[channel];
  if (id == kNoRoute) {
    const routing::Route route = make_route(d, slot, peer);
    id = network_->add_route(route, channel);
    crossings_.resize(id + 1);
    if (quiet_rings_) crossings_[id] = quiet_rings_->crossed_by(route, quiet_rings_->rank_of(d, slot));
  }
  state.last_peer = peer;
  state.last_route = id;
  return id;
}

routing::Route Session::make_route(int32_t d, int32_t slot, int32_t peer) {
  if (folding_.is_folded) return folding_.routes[folding_.channels.find(d, slot, peer)];
  const int32_t from = device_of(d).accelerator, to = graph_->devices[peer].accelerator;
  if (from == to) ROSTAM_THROW(ConfigError, "two ranks of one group sit on accelerator " << from);
  const auto rank = static_cast<uint64_t>(folding_.channels.rank_in_pair(d, slot, peer));
  routing::Route route = *route_table_->route_of({from, to, mix(mix(options_.seed + rank) + pack(from, to))});
  end_points_.check_route(route, from, to);
  return route;
}

Session::Traffic& Session::traffic_of(int32_t device, int32_t iteration, int32_t category) {
  const auto place = static_cast<size_t>(iteration);
  const size_t num_categories = graph_->categories.size();
  if (traffic_.size() <= place) traffic_.resize(place + 1, std::vector<Traffic>(jobs_.size() * num_categories));
  const auto job = static_cast<size_t>(device_of(device).job);
  return traffic_[place][job * num_categories + static_cast<size_t>(category)];
}

void Session::on_sent(uint64_t token) {
  Message& message = messages_[token];
  message.is_sending = false;
  count_on_wire(message.source, message.destination, static_cast<double>(wire_bytes(message.bytes)));
  for (const int32_t ring : crossings_[message.route]) quiet_rings_->leave(ring);
  Traffic& traffic = traffic_of(message.source, message.iteration, message.category);
  traffic.sent_bytes =
      checked_add(traffic.sent_bytes, checked_multiply(message.bytes, folding_.multiplicity[message.source]));
  traffic.num_messages += folding_.multiplicity[message.source];
  if (message.is_send) {
    finish_task(message.source, message.instance, message.task, message.origin->start, queue_.now(), message.origin);
    return;
  }
  if (!message.is_synchronous) end_send(message.source, message.slot, message.occurrence);
}

void Session::end_send(int32_t d, int32_t slot, uint32_t occurrence) {
  --participation(d, slot, occurrence).pending_sends;
  advance(d, slot, occurrence);
}

void Session::on_delivered(uint64_t token) {
  // Out of the pool first: what follows may start new messages.
  Message message = std::move(messages_[token]);
  free_messages_.push_back(static_cast<int32_t>(token));
  traffic_of(message.source, message.iteration, message.category).received_bytes +=
      message.bytes * folding_.multiplicity[message.source];
  if (message.is_send) {
    const auto waiting = awaited_.find(message.mailbox);
    if (waiting == awaited_.end()) {
      const bool is_new =
          arrived_.try_emplace(message.mailbox, Arrival{std::move(message.origin), queue_.now()}).second;
      if (!is_new) throw_sent_twice(message.mailbox);
      return;
    }
    const auto [sequence, task] = waiting->second;
    awaited_.erase(waiting);
    finish_task(message.destination, sequence, task, message.origin->start, queue_.now(), message.origin);
    return;
  }
  Participation& part = participation(message.destination, message.slot, message.occurrence);
  ++part.ordered_arrivals;
  if (static_cast<int32_t>(part.arrivals.size()) <= message.step) part.arrivals.resize(message.step + 1, 0);
  // A folded message stands for as many as its sender; they spread evenly over the ranks of the receiver's class.
  part.arrivals[message.step] += folding_.multiplicity[message.source];
  // The arrival decides when the rank goes on if it is what the rank's current step waited for.
  if (part.is_joined && part.step == message.step && part.pending_sends == 0) part.origin = std::move(message.origin);
  advance(message.destination, message.slot, message.occurrence);
  if (message.is_synchronous) end_send(message.source, message.slot, message.occurrence);
}

// A message of a simulated device, or a part of it, has crossed its links. One that stands for its sender's class is
// spread evenly over the receiver's.
void Session::count_on_wire(int32_t source, int32_t destination, double bytes) {
  wire_sent_[source] += bytes;
  const auto senders = static_cast<double>(folding_.multiplicity[source]);
  wire_received_[destination] += bytes * senders / static_cast<double>(folding_.multiplicity[destination]);
}

void Session::start_send(int32_t d, int64_t sequence, int32_t index, const CriticalPath::Ref& cause) {
  const Instance& instance = instance_of(d, sequence);
  const Task& task = graph_->templates[instance.template_id].tasks[index];
  PathNode node;
  node.start = node.end = queue_.now();
  node.is_join = true;
  const int32_t number = new_message();
  Message& message = messages_[number];
  message.source = d;
  message.peer = device_of(d).slots[task.slot].peer;
  message.destination = folding_.class_of_device[message.peer];
  message.slot = task.slot;
  message.bytes = task.bytes;
  message.instance = sequence;
  message.task = index;
  message.is_send = true;
  message.mailbox = {message.destination, task.channel, instance.iteration, instance.microbatch};
  message.origin = path_.add(node, cause);
  message.category = task.category;
  message.iteration = instance.iteration;
  message.is_synchronous = false;
  send_message(number);
}

// Called when the recv's instance is made: the message may have come before.
void Session::await_message(int32_t d, int64_t sequence, int32_t index) {
  const Instance& instance = instance_of(d, sequence);
  const Task& task = graph_->templates[instance.template_id].tasks[index];
  const MailboxKey key = {d, task.channel, instance.iteration, instance.microbatch};
  const auto early = arrived_.find(key);
  if (early == arrived_.end()) {
    awaited_.emplace(key, std::make_pair(sequence, index));
    return;
  }
  const Arrival arrival = std::move(early->second);
  arrived_.erase(early);
  finish_task(d, sequence, index, arrival.origin->start, arrival.time, arrival.origin);
}

}  // namespace rostam::runtime
