// StepwiseRunner: collectives message by message. A rank begins step k + 1 when its sends of step k have left it and
// the messages that it awaits in step k, or some steps before, have come (collectives/schedule.h). Through regions,
// where the engine knows trees, what a rank owns goes once all members have reached its step, and comes to all of them.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/collective_runner.h"
#include "runtime/instances.h"
#include "runtime/jobs.h"
#include "runtime/ledger.h"
#include "runtime/messenger.h"
#include "runtime/options.h"
#include "runtime/participations.h"

namespace rostam::runtime {

// What runners work on.
struct RunnerParts {
  const WeightedSystem& system;
  const SessionOptions& options;
  EventQueue& queue;
  CriticalPath& path;
  Instances& instances;
  const Jobs& jobs;
  Participations& participations;
  Messenger& messenger;
  Ledger& ledger;
  TaskSink& sink;
  bool knows_trees = true;  // the engine and the routing: what goes through regions is one transfer
};

class StepwiseRunner : public CollectiveRunner {
 public:
  explicit StepwiseRunner(const RunnerParts& parts);

  void join(const TaskRef& task, const CriticalPath::Ref& cause) override;
  void on_sent(const Message& message) override;
  void on_delivered(Message& message) override;
  void add_loads(SimTime, network::NetworkStats&) const override {}
  void count_carried(SimTime) override {}

  // For shortcuts: enters a rank into its collective and returns which one on the slot it is; goes on with it step by
  // step; ends the oldest one on the slot for it.
  uint32_t enter(const TaskRef& task, const CriticalPath::Ref& cause);
  void advance(int32_t device, int32_t slot, uint32_t occurrence);
  void complete(int32_t device, int32_t slot);

 private:
  void on_end(uint64_t device_and_slot_and_epoch);
  void advance(int32_t device, int32_t slot, uint32_t occurrence, Participation& part);
  int32_t lead_of(const Participation& part) const;
  void start_step(int32_t device, Participation& part, uint32_t occurrence);
  void send_step(int32_t device, Participation& part, uint32_t occurrence);
  const std::vector<collectives::Transfer>& messages_of(Participation& part, int32_t rank,
                                                        const collectives::Schedule& schedule);
  void send_deferred(Participation& part);
  bool takes_regions(const Participation& part) const;
  void send_regions(int32_t device, Participation& part, uint32_t occurrence);
  void release_region(int32_t device, const Participation& part, uint32_t occurrence, int32_t region);
  void deliver_region(const Message& message);
  int64_t awaited_of(const Participation& part, int32_t rank, int32_t step) const;
  int32_t make_message(int32_t device, const Participation& part, uint32_t occurrence, int32_t peer,
                       int32_t num_chunks);
  void end_send(int32_t device, int32_t slot, uint32_t occurrence);

  RunnerParts parts_;
  MemberEvent<StepwiseRunner> ends_;
  std::vector<collectives::Transfer> transfers_;
};

}  // namespace rostam::runtime
