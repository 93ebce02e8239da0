#include "runtime/session.h"

#include <utility>

#include "runtime/ring_runner.h"
#include "sim/interrupt.h"

namespace rostam::runtime {

Session::Session(WeightedSystem& system, routing::RouteTable& routes, const SessionOptions& options,
                 Controllers& controllers, routing::EndPoints& end_points)
    : system_(system),
      options_(options),
      instances_(system, options.max_iterations),
      participations_(system),
      jobs_(system, options, [&controllers] { return are_settled(controllers); }),
      ledger_(system, jobs_),
      breakdown_(system, jobs_, participations_),
      scheduler_({system, options, queue_, path_, instances_, jobs_, breakdown_, *this, *this}),
      messenger_(system, routes, options, queue_, ledger_, end_points, *this),
      mailboxes_(system, queue_, path_, instances_, messenger_, scheduler_),
      start_ups_(system, queue_, instances_, jobs_, *this),
      restarts_({system, queue_, instances_, participations_, jobs_, ledger_, breakdown_, scheduler_, messenger_,
                 mailboxes_}),
      control_(controllers, queue_, *this, messenger_.carrier(), routes, end_points) {
  if (routes.reads_backlog()) routes.read_backlog(&messenger_.carrier().network());
  const bool knows_trees = !network::engine_traits(options.fidelity).walks_packets && routes.knows_trees();
  const RunnerParts parts = {system,          options,    queue_,  path_,      instances_, jobs_,
                             participations_, messenger_, ledger_, scheduler_, knows_trees};
  const folding::Footprint footprint = footprint_of(controllers, routes);
  const bool is_exact = network::engine_traits(options.fidelity).exact_when_alone;
  if (options.enable_shortcuts && is_exact && !footprint.is_any && !options.enable_parking && !routes.reads_backlog() &&
      !routes.is_adaptive()) {
    runner_ = std::make_unique<RingRunner>(parts, routes, footprint, controllers.empty());
  } else {
    runner_ = std::make_unique<StepwiseRunner>(parts);
  }
  if (options.watch_stalls) stalls_ = std::make_unique<Stalls>(system_, queue_, messenger_, control_);
  if (control_.hears(control::kPhaseStart | control::kPhaseEnd)) scheduler_.tell_phases();
  if (control_.hears(control::kIterationStart)) scheduler_.tell_starts();
  // Capacities that change at time 0 hold for everything that starts then.
  control_.begin();
  scheduler_.start();
}

int32_t Session::simulated_link(int32_t link) const {
  const auto num_links = static_cast<int32_t>(system_.link_stand_in.size());
  return link >= 0 && link < num_links ? system_.link_stand_in[link] : link;  // added ones stand for themselves
}

void Session::start_up_over(const TaskRef& task, const CriticalPath::Ref& cause) {
  if (instances_.task(task).kind == workload::TaskKind::kSend) {
    mailboxes_.start_send(task, cause);
  } else {
    runner_->join(task, cause);
  }
}
void Session::await_message(const TaskRef& task) { mailboxes_.await_message(task); }

void Session::on_sent(const Message& message) {
  if (message.is_send) {
    mailboxes_.on_sent(message);
  } else {
    runner_->on_sent(message);
  }
}

void Session::on_delivered(Message& message) {
  if (message.is_send) {
    mailboxes_.on_delivered(message);
  } else {
    runner_->on_delivered(message);
  }
}

void Session::on_iteration_start(int32_t job, int32_t iteration) {
  control::Event event;
  event.kind = control::kIterationStart;
  event.job = job;
  event.iteration = iteration;
  control_.tell(event);
}

void Session::hold(int32_t job, int32_t iteration, SimTime until) {
  restarts_.accelerators_of(job);  // it exists
  if (iteration < jobs_.num_done(job) || until < queue_.now()) {
    ROSTAM_THROW(ConfigError, "a controller holds iteration " << iteration << " of job " << job << " until "
                                                              << until.seconds() << " s at " << queue_.now().seconds()
                                                              << " s; the job has ended " << jobs_.num_done(job));
  }
  jobs_.hold(job, iteration, until);
}

void Session::on_iteration_end(int32_t job) {
  if (job == 0) ledger_.end_iteration(stats());
  if (stalls_) {
    const int32_t iteration = jobs_.num_done(job) - 1;
    stalls_->end_iteration(job, iteration, path_, jobs_.ended_by(job), jobs_.ends(job)[static_cast<size_t>(iteration)]);
  }
  if (!control_.hears(control::kIterationEnd)) return;
  control::Event event;
  event.kind = control::kIterationEnd;
  event.job = job;
  event.iteration = jobs_.num_done(job) - 1;
  control_.tell(event);
}

void Session::tell(control::EventKind kind, int32_t device, const Instance& instance) {
  control::Event event;
  event.kind = kind;
  event.job = system_.devices[device].job;
  event.accelerator = system_.devices[device].accelerator;
  event.template_id = instance.template_id;
  event.microbatch = instance.microbatch;
  event.iteration = instance.iteration;
  control_.tell(event);
}

int32_t Session::num_iterations_done(int32_t job) const {
  restarts_.accelerators_of(job);  // it exists
  return jobs_.num_done(job);
}

network::NetworkStats Session::stats() {
  network::NetworkStats now = messenger_.carrier().network().stats();
  runner_->add_loads(queue_.now(), now);
  return now;
}

SessionResult Session::run() {
  try {
    run_events();
  } catch (const RangeError& error) {
    ROSTAM_THROW(ConfigError, error.what() << "; it happened at " << queue_.now().seconds() << " s in "
                                           << scheduler_.describe_current());
  }
  ledger_.check();
  mailboxes_.check(jobs_);
  return collect();
}

void Session::run_events() {
  InterruptPoll poll;
  while (jobs_.is_running()) {
    if (queue_.is_empty()) throw_deadlock();
    queue_.run_next();
    poll();
  }
}

void Session::throw_deadlock() {
  restarts_.throw_if_down();
  messenger_.carrier().throw_if_stuck();
  std::ostringstream text;
  const std::string circle = messenger_.carrier().network().describe_stall();
  if (!circle.empty()) text << circle << "; ";
  text << "nothing can happen any more at " << queue_.now().seconds() << " s, but tasks remain";
  const int64_t num_active = messenger_.carrier().network().stats().num_active;
  if (num_active > 0) text << "; " << num_active << " messages are stalled on links of capacity 0";
  throw DeadlockError(text.str() + instances_.describe_blocked(10));
}

SessionResult Session::collect() {
  SessionResult result;
  scheduler_.fill(result);
  jobs_.fill(path_, result);
  breakdown_.fill(result);
  messenger_.carrier().count_under_way();
  runner_->count_carried(queue_.now());
  const network::NetworkStats total = stats();
  restarts_.fill(result);
  ledger_.fill(total, result);
  messenger_.carrier().wire().fill(result);
  if (stalls_) stalls_->fill(result);
  result.strays = messenger_.carrier().network().strays();
  if (std::string note = messenger_.carrier().network().note(); !note.empty()) result.notes.push_back(std::move(note));
  result.reports = control_.report();
  result.failed = control_.failed();
  result.num_simulated_devices = static_cast<int32_t>(system_.devices.size());
  result.num_events = queue_.num_events();
  result.num_solves = total.num_solves;
  return result;
}

}  // namespace rostam::runtime
