// CollectiveRunner: takes ranks through collectives. The stepwise one sends every message; the others are shortcuts
// that end to the same picosecond and go on stepwise where they do not hold.
#pragma once

#include "runtime/messenger.h"
#include "runtime/tasks.h"

namespace rostam::runtime {

class CollectiveRunner {
 public:
  virtual ~CollectiveRunner() = default;

  // A rank's task comes to its collective; `cause` decided when.
  virtual void join(const TaskRef& task, const CriticalPath::Ref& cause) = 0;

  // A message of a collective has left its source, has arrived.
  virtual void on_sent(const Message& message) = 0;
  virtual void on_delivered(Message& message) = 0;

  // Adds what was carried without messages up to `now` to the links' loads.
  virtual void add_loads(SimTime now, network::NetworkStats& stats) const = 0;
  // Counts the same in the ledger, at the devices; for the end of a run.
  virtual void count_carried(SimTime now) = 0;
};

}  // namespace rostam::runtime
