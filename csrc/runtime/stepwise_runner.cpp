#include "runtime/stepwise_runner.h"

#include <algorithm>
#include <utility>

#include "sim/checked.h"

namespace rostam::runtime {

using workload::SlotBinding;

StepwiseRunner::StepwiseRunner(const RunnerParts& parts) : parts_(parts), ends_(*this, &StepwiseRunner::on_end) {
  for (const auto& schedule : parts.system.graph->schedules) {
    if (parts.knows_trees || schedule->regions().empty() || schedule->loads_as_messages()) continue;
    throw ConfigError(
        "a collective goes through switches that add up or copy, which fidelity=packet, routing=adaptive and planes "
        "that "
        "differ, since parts of one fail, do not have; take fidelity=flow and another routing, or another algorithm "
        "than "
        "pull, push and multicast");
  }
}

void StepwiseRunner::join(const TaskRef& ref, const CriticalPath::Ref& cause) {
  const uint32_t occurrence = enter(ref, cause);
  advance(ref.device, parts_.instances.task(ref).slot, occurrence);
}

uint32_t StepwiseRunner::enter(const TaskRef& ref, const CriticalPath::Ref& cause) {
  const Task& task = parts_.instances.task(ref);
  const uint32_t occurrence = parts_.participations.join(ref.device, task.slot);
  Participation& part = parts_.participations.at(ref.device, task.slot, occurrence);
  part.is_joined = true;
  part.sequence = ref.sequence;
  part.task = ref.task;
  part.iteration = parts_.instances.at(ref.device, ref.sequence).iteration;
  part.body = &task;
  part.chunk_bytes = parts_.system.graph->chunk_bytes(task);
  part.category = task.category;
  part.joined = parts_.queue.now() - task.duration;  // where its start-up began
  PathNode node;
  node.start = node.end = part.joined;
  node.is_join = true;
  part.origin = parts_.path.add(node, cause);
  parts_.sink.change_collectives(ref.device, 1, task);
  return occurrence;
}

void StepwiseRunner::advance(int32_t d, int32_t slot, uint32_t occurrence) {
  advance(d, slot, occurrence, parts_.participations.at(d, slot, occurrence));
}

// Moves a rank through as many steps as its sends and arrivals allow. Its part is gone if that was the last one.
void StepwiseRunner::advance(int32_t d, int32_t slot, uint32_t occurrence, Participation& part) {
  if (!part.is_joined) return;
  const collectives::Schedule& schedule = *parts_.system.graph->schedules[part.body->schedule];
  const collectives::Shape& shape = schedule.shape();
  while (part.step < shape.num_steps) {
    if (!part.is_step_started) start_step(d, part, occurrence);
    if (part.pending_sends > 0) return;
    if (shape.has_ordered_arrivals) {
      if (part.ordered_arrivals <= part.step) return;
    } else {
      const int32_t step = part.step - shape.lead;
      const bool has_any = step >= 0 && static_cast<int32_t>(part.arrivals.size()) > step;
      const int32_t rank = parts_.system.devices[d].slots[slot].rank;
      const int64_t awaited = step < 0 ? 0 : awaited_of(part, rank, step) * parts_.system.weights[d];
      if ((has_any ? part.arrivals[step] : 0) < awaited) return;
    }
    ++part.step;
    part.is_step_started = false;
  }
  const SimTime earliest = part.joined + parts_.options.min_collective_time;
  if (earliest > parts_.queue.now()) {
    parts_.queue.schedule(earliest, Priority::kNormal, &ends_, pack(d, slot, parts_.jobs.epoch_of(d)));
  } else {
    complete(d, slot);
  }
}

int32_t StepwiseRunner::lead_of(const Participation& part) const {
  return parts_.system.graph->schedules[part.body->schedule]->shape().lead;
}

void StepwiseRunner::start_step(int32_t d, Participation& part, uint32_t occurrence) {
  part.is_step_started = true;
  if (takes_regions(part)) return send_regions(d, part, occurrence);
  send_step(d, part, occurrence);
  // The receiver may be this very rank (folded): `part` stays valid, deque elements do not move on push_back.
  send_deferred(part);
}

bool StepwiseRunner::takes_regions(const Participation& part) const {
  return parts_.knows_trees && !parts_.system.graph->region_of[part.body->schedule].empty();
}

int64_t StepwiseRunner::awaited_of(const Participation& part, int32_t rank, int32_t step) const {
  const collectives::Schedule& schedule = *parts_.system.graph->schedules[part.body->schedule];
  return takes_regions(part) ? schedule.num_region_arrivals(rank, step) : schedule.num_receives(rank, step);
}

// What the rank owns of its step goes through its regions, once their last member has come so far: maybe this rank.
void StepwiseRunner::send_regions(int32_t d, Participation& part, uint32_t occurrence) {
  const workload::TaskGraph& graph = *parts_.system.graph;
  const int32_t schedule = part.body->schedule, slot = part.body->slot;
  std::vector<collectives::RegionTransfer> transfers;
  graph.schedules[schedule]->region_transfers(parts_.system.devices[d].slots[slot].rank, part.step, transfers);
  part.pending_sends = static_cast<int32_t>(transfers.size());
  for (const collectives::RegionTransfer& transfer : transfers) {
    const int32_t region = graph.region_of[schedule][transfer.region];
    const int32_t index = make_message(d, part, occurrence, workload::channel_to(region), transfer.num_chunks);
    part.chunks_sent += transfer.num_chunks;
    part.deferred.push_back({index, part.step});
  }
  for (const int32_t region : graph.region_of[schedule]) release_region(d, part, occurrence, region);
}

void StepwiseRunner::release_region(int32_t d, const Participation& part, uint32_t occurrence, int32_t region) {
  const int32_t slot = part.body->slot, step = part.step;
  const std::vector<int32_t> members =
      parts_.system.graph->region_members(parts_.system.devices[d].slots[slot], region);
  const auto part_of = [&](int32_t member) -> Participation& {
    return parts_.participations.at(parts_.system.device_stand_in[member], slot, occurrence);
  };
  for (const int32_t member : members) {
    const Participation& other = part_of(member);
    const bool is_there = other.is_joined && (other.step > step || (other.step == step && other.is_step_started));
    if (!is_there) return;
  }
  const CriticalPath::Ref origin = part.origin;  // of the last one
  for (const int32_t member : members) {
    Participation& other = part_of(member);
    for (size_t k = 0; k < other.deferred.size();) {
      const Deferred waiting = other.deferred[k];
      if (waiting.step != step || parts_.messenger[waiting.message].peer != workload::channel_to(region)) {
        ++k;
        continue;
      }
      other.deferred.erase(other.deferred.begin() + static_cast<std::ptrdiff_t>(k));
      parts_.messenger[waiting.message].origin = origin;
      parts_.messenger.send(waiting.message);
    }
  }
}

// To the owner alone, or to all members, of which a simulated device may stand for several.
void StepwiseRunner::deliver_region(const Message& message) {
  const workload::TaskGraph& graph = *parts_.system.graph;
  const int32_t region = workload::region_of(message.peer);
  std::vector<int32_t> targets = {message.source};
  if (graph.regions[region].op != collectives::SwitchOp::kReduce) {
    targets = graph.region_members(parts_.system.devices[message.source].slots[message.slot], region);
    for (int32_t& target : targets) target = parts_.system.device_stand_in[target];
  }
  const auto part_of = [&](int32_t target) -> Participation& {
    return parts_.participations.at(target, message.slot, message.occurrence);
  };
  for (const int32_t target : targets) {
    Participation& part = part_of(target);
    if (static_cast<int32_t>(part.arrivals.size()) <= message.step) part.arrivals.resize(message.step + 1, 0);
    part.arrivals[message.step] += parts_.system.weights[message.source];
  }
  std::sort(targets.begin(), targets.end());
  targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
  for (const int32_t target : targets) {
    Participation& part = part_of(target);
    if (part.is_joined && part.pending_sends == 0 && part.step == message.step) part.origin = message.origin;
    advance(target, message.slot, message.occurrence, part);
  }
}

// What a rank sends in its step: asked of the schedule once where that is the same in every step.
const std::vector<collectives::Transfer>& StepwiseRunner::messages_of(Participation& part, int32_t rank,
                                                                      const collectives::Schedule& schedule) {
  const bool is_fixed = schedule.shape().has_fixed_peers;
  if (is_fixed && !part.messages.empty()) return part.messages;
  std::vector<collectives::Transfer>& messages = is_fixed ? part.messages : transfers_;
  messages.clear();
  schedule.messages(rank, part.step, messages);
  return messages;
}

int32_t StepwiseRunner::make_message(int32_t d, const Participation& part, uint32_t occurrence, int32_t peer,
                                     int32_t num_chunks) {
  const int32_t index = parts_.messenger.make(d, part.body->slot, peer);
  Message& message = parts_.messenger[index];
  message.step = part.step;
  message.occurrence = occurrence;
  parts_.messenger.load(index, checked_multiply(part.chunk_bytes, num_chunks), part.body->protocol);
  message.origin = part.origin;
  message.category = part.body->category;
  message.iteration = part.iteration;
  return index;
}

void StepwiseRunner::send_step(int32_t d, Participation& part, uint32_t occurrence) {
  const Task& task = *part.body;
  const collectives::Schedule& schedule = *parts_.system.graph->schedules[task.schedule];
  const SlotBinding& binding = parts_.system.devices[d].slots[task.slot];
  const std::vector<int32_t>& members = parts_.system.graph->groups[binding.group];
  const std::vector<collectives::Transfer>& messages = messages_of(part, binding.rank, schedule);
  part.pending_sends = static_cast<int32_t>(messages.size());
  for (const collectives::Transfer& transfer : messages) {
    const int32_t index = make_message(d, part, occurrence, members[transfer.peer], transfer.num_chunks);
    Message& message = parts_.messenger[index];
    message.is_synchronous = schedule.shape().is_synchronous;
    message.is_ordered = schedule.shape().has_ordered_arrivals;
    part.chunks_sent += transfer.num_chunks;
    if (message.is_synchronous) {
      Participation& receiver = parts_.participations.at(message.target, task.slot, occurrence);
      const bool is_ready =
          receiver.is_joined && (receiver.step > part.step || (receiver.step == part.step && receiver.is_step_started));
      if (!is_ready) {
        receiver.deferred.push_back({index, part.step});
        continue;
      }
    }
    parts_.messenger.send(index);
  }
}

// Messages that waited for this rank to reach its present step.
void StepwiseRunner::send_deferred(Participation& part) {
  for (size_t k = 0; k < part.deferred.size();) {
    if (part.deferred[k].step > part.step) {
      ++k;
      continue;
    }
    const int32_t index = part.deferred[k].message;
    part.deferred.erase(part.deferred.begin() + static_cast<std::ptrdiff_t>(k));
    parts_.messenger[index].origin = part.origin;
    parts_.messenger.send(index);
  }
}

void StepwiseRunner::on_end(uint64_t payload) {
  const int32_t d = high(payload);
  if (epoch_of(payload) == parts_.jobs.epoch_of(d)) complete(d, index_of(payload));
}

void StepwiseRunner::complete(int32_t d, int32_t slot) {
  const Participation part = parts_.participations.take_front(d, slot);
  const TaskRef ref = {d, part.sequence, part.task};
  const Task& task = parts_.instances.task(ref);
  const SimTime now = parts_.queue.now();
  parts_.ledger.count_collective(d, part.iteration, task, now - part.joined, part.chunks_sent);
  parts_.sink.change_collectives(d, -1, task);
  parts_.sink.finish_task(ref, part.origin->start, now, part.origin);
}

void StepwiseRunner::on_sent(const Message& message) {
  if (!message.is_synchronous) end_send(message.source, message.slot, message.occurrence);
}

void StepwiseRunner::end_send(int32_t d, int32_t slot, uint32_t occurrence) {
  Participation& part = parts_.participations.at(d, slot, occurrence);
  --part.pending_sends;
  advance(d, slot, occurrence, part);
}

void StepwiseRunner::on_delivered(Message& message) {
  if (message.has_tree) return deliver_region(message);
  Participation& part = parts_.participations.at(message.target, message.slot, message.occurrence);
  if (message.is_ordered) {
    ++part.ordered_arrivals;
  } else {
    if (static_cast<int32_t>(part.arrivals.size()) <= message.step) part.arrivals.resize(message.step + 1, 0);
    // A message stands for as many as its sender does; they spread evenly over what its receiver stands for.
    part.arrivals[message.step] += parts_.system.weights[message.source];
  }
  // The arrival decides when the rank goes on if it is what the rank's current step waited for.
  if (part.is_joined && part.pending_sends == 0 && part.step == message.step + lead_of(part)) {
    part.origin = std::move(message.origin);
  }
  advance(message.target, message.slot, message.occurrence, part);
  if (message.is_synchronous) end_send(message.source, message.slot, message.occurrence);
}

}  // namespace rostam::runtime
