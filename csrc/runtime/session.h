// Session: runs a weighted system over a network until its iteration time is steady. Only wires its parts: scheduler,
// collective runner, mailboxes, messenger, ledger, breakdown. A process may hold many.
// Example: run_session(graph, routes, options).jobs[0].iteration_ends.
#pragma once

#include <memory>
#include <vector>

#include "runtime/control_host.h"
#include "runtime/restarts.h"
#include "runtime/stalls.h"
#include "runtime/start_ups.h"
#include "runtime/stepwise_runner.h"

namespace rostam::runtime {

using workload::SessionResult;

class Session : public MessageClient,
                public TaskStarter,
                public StartUpClient,
                public ProgressClient,
                public ControlTarget {
 public:
  // All arguments must outlive the session; the system and the routes are its own, to change.
  Session(WeightedSystem& system, routing::RouteTable& routes, const SessionOptions& options, Controllers& controllers,
          routing::EndPoints& end_points);

  // Runs once. The result is that of the system's own devices and links, without its checks.
  // Throws: DeadlockError (up to ten blocked tasks), NoRouteError, ConfigError for what simulated time or 64-bit sums
  // cannot hold, InternalError for a broken conservation law.
  SessionResult run();

  void on_sent(const Message& message) override;
  void on_delivered(Message& message) override;
  void start_communication(const TaskRef& task, const CriticalPath::Ref& cause) override {
    start_ups_.start(task, cause);
  }
  void start_up_over(const TaskRef& task, const CriticalPath::Ref& cause) override;
  void await_message(const TaskRef& task) override;
  void on_iteration_start(int32_t job, int32_t iteration) override;
  void on_iteration_end(int32_t job) override;
  void on_phase_start(int32_t device, const Instance& instance) override {
    tell(control::kPhaseStart, device, instance);
  }
  void on_phase_end(int32_t device, const Instance& instance) override { tell(control::kPhaseEnd, device, instance); }
  network::NetworkStats stats() override;
  int32_t simulated_link(int32_t link) const override;
  std::vector<int32_t> cut_failed(const Faults& faults) override { return restarts_.cut_failed(faults); }
  void restart(int32_t job, SimTime when, int32_t from_iteration, const std::vector<int32_t>& accelerators,
               const Faults& faults) override {
    restarts_.restart(job, when, from_iteration, accelerators, faults);
    if (stalls_) stalls_->restart(job, from_iteration);
  }
  void hold(int32_t job, int32_t iteration, SimTime until) override;
  std::vector<int32_t> accelerators_of(int32_t job) const override { return restarts_.accelerators_of(job); }
  int32_t num_jobs() const override { return jobs_.size(); }
  int32_t num_iterations_done(int32_t job) const override;

 private:
  void tell(control::EventKind kind, int32_t device, const Instance& instance);
  void run_events();
  [[noreturn]] void throw_deadlock();
  SessionResult collect();

  const WeightedSystem& system_;
  const SessionOptions& options_;
  EventQueue queue_;
  CriticalPath path_;
  Instances instances_;
  Participations participations_;
  Jobs jobs_;
  Ledger ledger_;
  Breakdown breakdown_;
  Scheduler scheduler_;
  Messenger messenger_;
  Mailboxes mailboxes_;
  StartUps start_ups_;
  std::unique_ptr<CollectiveRunner> runner_;
  Restarts restarts_;
  ControlHost control_;
  std::unique_ptr<Stalls> stalls_;  // where they are watched
};

// Folds the graph if the options and the engine allow it, runs it, and unfolds the result; checks MODEL K29.
// Throws: as Session::run; ConfigError if the graph is not frozen or an option is out of range.
SessionResult run_session(std::shared_ptr<const workload::TaskGraph> graph, const routing::RouteTable& routes,
                          const SessionOptions& options, Controllers& controllers);

}  // namespace rostam::runtime
