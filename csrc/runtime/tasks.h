// What the parts of a session say to each other about tasks. Devices are simulated ones throughout.
#pragma once

#include <cstdint>

#include "runtime/critical_path.h"

namespace rostam::runtime {

// A task of a live instance.
struct TaskRef {
  int32_t device = 0;
  int64_t sequence = 0;  // of the instance among its device's
  int32_t task = 0;      // in its template
};

// Runs the communication that streams come to. Implemented by the session.
class TaskStarter {
 public:
  virtual ~TaskStarter() = default;
  // A collective or a send.
  virtual void start_communication(const TaskRef& task, const CriticalPath::Ref& cause) = 0;
  // Called when the receive's instance is made: the message may have come before.
  virtual void await_message(const TaskRef& task) = 0;
};

// Hears how communication goes. Implemented by the scheduler.
class TaskSink {
 public:
  virtual ~TaskSink() = default;
  // `end` is now, or before it for a message that came before its receive was made.
  virtual void finish_task(const TaskRef& task, SimTime start, SimTime end, const CriticalPath::Ref& parent) = 0;
  // The device joins (1) or leaves (-1) a collective, which takes a part of its compute meanwhile.
  virtual void change_collectives(int32_t device, int32_t change, const workload::Task& task) = 0;
  // A task of the device's stream is about to end.
  virtual void fetch(int32_t device, int32_t stream) const = 0;
};

}  // namespace rostam::runtime
