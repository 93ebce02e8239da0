// Mailboxes: point-to-point messages between devices, kept where they arrive until their receive takes them.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "runtime/instances.h"
#include "runtime/jobs.h"
#include "runtime/messenger.h"

namespace rostam::runtime {

class Mailboxes {
 public:
  Mailboxes(const WeightedSystem& system, EventQueue& queue, CriticalPath& path, Instances& instances,
            Messenger& messenger, TaskSink& sink);

  void start_send(const TaskRef& task, const CriticalPath::Ref& cause);

  // Called when the receive's instance is made: the message may have come before.
  void await_message(const TaskRef& task);

  // The sender is free once its message's last byte has left.
  void on_sent(const Message& message);
  void on_delivered(Message& message);

  // Of a device whose job is cut: what came to it.
  void cut(int32_t device);

  // Throws: ConfigError if two messages of a finished iteration came to one receive.
  void check(const Jobs& jobs) const;

 private:
  struct Arrival {
    CriticalPath::Ref origin;
    SimTime time;
  };
  // The receive that waits for the message, if its instance has been made.
  std::optional<TaskRef> find_receive(const MailboxKey& key) const;
  [[noreturn]] void throw_sent_twice(const MailboxKey& key) const;

  const WeightedSystem& system_;
  EventQueue& queue_;
  CriticalPath& path_;
  Instances& instances_;
  Messenger& messenger_;
  TaskSink& sink_;
  std::unordered_map<MailboxKey, Arrival, MailboxHash> arrived_;  // before its receive was made
};

}  // namespace rostam::runtime
