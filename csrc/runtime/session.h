// Session: runs a weighted system over a network until its iteration time is steady. Only wires its parts: scheduler,
// collective runner, mailboxes, messenger, ledger, breakdown. A process may hold many.
// Example: run_session(graph, routes, options).jobs[0].iteration_ends.
#pragma once

#include <memory>
#include <vector>

#include "runtime/control_host.h"
#include "runtime/mailboxes.h"
#include "runtime/scheduler.h"
#include "runtime/stepwise_runner.h"

namespace rostam::runtime {

using workload::SessionResult;

using Controllers = std::vector<std::unique_ptr<control::Controller>>;

// What controllers may touch, all together.
folding::Footprint footprint_of(const Controllers& controllers);

class Session : public MessageClient, public TaskStarter, public IterationClient, public ControlTarget {
 public:
  // All arguments must outlive the session; the routes are its own, to change.
  Session(const WeightedSystem& system, routing::RouteTable& routes, const SessionOptions& options,
          Controllers& controllers, routing::EndPoints& end_points);

  // Runs once. The result is that of the system's own devices and links, without its checks.
  // Throws: DeadlockError (up to ten blocked tasks), NoRouteError, ConfigError for what simulated time or 64-bit sums
  // cannot hold, InternalError for a broken conservation law.
  SessionResult run();

  void on_sent(const Message& message) override;
  void on_delivered(Message& message) override;
  void start_collective(const TaskRef& task, const CriticalPath::Ref& cause) override;
  void start_send(const TaskRef& task, const CriticalPath::Ref& cause) override;
  void await_message(const TaskRef& task) override;
  void on_iteration_end(int32_t job) override;
  network::Network& network() override { return messenger_.network(); }
  network::NetworkStats stats() override;
  int32_t simulated_link(int32_t link) const override;
  void on_new_route(int32_t src, int32_t dst) override { messenger_.move(src, dst); }
  void on_new_offers() override { messenger_.routes().forget_all(); }

 private:
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
  std::unique_ptr<CollectiveRunner> runner_;
  ControlHost control_;
};

// Folds the graph if the options and the engine allow it, runs it, and unfolds the result; checks MODEL K29.
// Throws: as Session::run; ConfigError if the graph is not frozen or an option is out of range.
SessionResult run_session(std::shared_ptr<const workload::TaskGraph> graph, const routing::RouteTable& routes,
                          const SessionOptions& options, Controllers& controllers);

}  // namespace rostam::runtime
