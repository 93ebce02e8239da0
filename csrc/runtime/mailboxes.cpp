#include "runtime/mailboxes.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace rostam::runtime {

using workload::TaskKind;

Mailboxes::Mailboxes(const WeightedSystem& system, EventQueue& queue, CriticalPath& path, Instances& instances,
                     Messenger& messenger, TaskSink& sink)
    : system_(system), queue_(queue), path_(path), instances_(instances), messenger_(messenger), sink_(sink) {}

void Mailboxes::start_send(const TaskRef& ref, const CriticalPath::Ref& cause) {
  const Instance& instance = instances_.at(ref.device, ref.sequence);
  const Task& task = instances_.task(ref);
  PathNode node;
  node.start = node.end = queue_.now() - task.duration;  // where its start-up began
  node.is_join = true;
  const int32_t number = messenger_.make(ref.device, task.slot, system_.devices[ref.device].slots[task.slot].peer);
  Message& message = messenger_[number];
  messenger_.load(number, task.bytes, task.protocol);
  message.is_send = true;
  message.sender = ref;
  message.mailbox = {message.target, task.channel, instance.iteration, instances_.microbatch(ref)};
  message.origin = path_.add(node, cause);
  message.category = task.category;
  message.iteration = instance.iteration;
  messenger_.send(number);
}

void Mailboxes::await_message(const TaskRef& ref) {
  if (arrived_.empty()) return;
  const Instance& instance = instances_.at(ref.device, ref.sequence);
  const auto early =
      arrived_.find({ref.device, instances_.task(ref).channel, instance.iteration, instances_.microbatch(ref)});
  if (early == arrived_.end()) return;
  const Arrival arrival = std::move(early->second);
  arrived_.erase(early);
  sink_.finish_task(ref, arrival.origin->start, arrival.time, arrival.origin);
}

// Live instances are few: those that the device is in, and the ones before it that messages are still on their way to.
std::optional<TaskRef> Mailboxes::find_receive(const MailboxKey& key) const {
  for (int64_t sequence = instances_.first(key.device); sequence < instances_.next(key.device); ++sequence) {
    const Instance& instance = instances_.at(key.device, sequence);
    if (instance.iteration != key.iteration) continue;
    const auto& receives = instances_.body(instance).receives;
    auto one = std::lower_bound(receives.begin(), receives.end(), std::make_pair(key.channel, 0));
    for (; one != receives.end() && one->first == key.channel; ++one) {
      const TaskRef ref = {key.device, sequence, one->second};
      if (instances_.microbatch(ref) == key.microbatch && !instance.tasks[one->second].is_done) return ref;
    }
  }
  return std::nullopt;
}

void Mailboxes::on_sent(const Message& message) {
  const CriticalPath::Ref origin = message.origin;  // the message may move while the task ends
  sink_.finish_task(message.sender, origin->start, queue_.now(), origin);
}

void Mailboxes::on_delivered(Message& message) {
  const std::optional<TaskRef> receive = find_receive(message.mailbox);
  if (!receive) {
    const bool is_new = arrived_.try_emplace(message.mailbox, Arrival{message.origin, queue_.now()}).second;
    if (!is_new) throw_sent_twice(message.mailbox);
    return;
  }
  sink_.finish_task(*receive, message.origin->start, queue_.now(), message.origin);
}

void Mailboxes::cut(int32_t device) {
  for (auto entry = arrived_.begin(); entry != arrived_.end();) {
    entry = entry->first.device == device ? arrived_.erase(entry) : std::next(entry);
  }
}

// A message that is left in a finished iteration and has a receive: another one was taken for it.
void Mailboxes::check(const Jobs& jobs) const {
  for (const auto& [key, arrival] : arrived_) {
    if (key.iteration + 1 >= static_cast<int32_t>(jobs.ends_of(key.device).size())) continue;
    for (const int32_t id : system_.graph->programs[system_.devices[key.device].program].templates()) {
      for (const Task& task : system_.graph->templates[id].tasks) {
        if (task.kind == TaskKind::kRecv && task.channel == key.channel) throw_sent_twice(key);
      }
    }
  }
}

void Mailboxes::throw_sent_twice(const MailboxKey& key) const {
  ROSTAM_THROW(ConfigError, "two messages on channel " << key.channel << " of micro-batch " << key.microbatch
                                                       << " come to accelerator "
                                                       << system_.devices[key.device].accelerator
                                                       << " in one iteration; give each a channel of its own");
}

}  // namespace rostam::runtime
