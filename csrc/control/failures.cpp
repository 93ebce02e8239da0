// failures: parts that fail at given times and are repaired at others, and what is done about it. Routes are chosen
// anew among what works a while after each failure and repair; a job that is cut goes on with its last checkpoint,
// spares in place of what it has lost. Without a spare it waits for a repair; without that, too, the run ends in an
// error. Source: MODEL F19.
#include <algorithm>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "control/registry.h"

namespace rostam::control {

namespace {

constexpr int64_t kNever = -1;
constexpr int64_t kMaxMoves = 16;  // of one time that are told apart

struct Failure {
  Part part;
  SimTime fail;
  int64_t repair_ps = kNever;
};

struct Recovery {
  SimTime reroute;         // from a failure or repair to new routes
  SimTime restart;         // from the cut of a job, or the repair that it waits for, to its restart
  int32_t checkpoint = 1;  // iterations from one to the next; 0: a job begins with its first again
  std::vector<int32_t> spares;
};

class FailuresController : public Controller {
 public:
  FailuresController(std::vector<Failure> failures, Recovery recovery)
      : failures_(std::move(failures)), recovery_(std::move(recovery)), spares_(recovery_.spares) {}

  void begin(ControlPlane& plane) override {
    for (size_t k = 0; k < failures_.size(); ++k) {
      const Failure& failure = failures_[k];
      todo_.insert({failure.fail, Step::kFail, static_cast<int32_t>(k)});
      todo_.insert({failure.fail + recovery_.reroute, Step::kReroute, 0});
      if (failure.repair_ps == kNever) continue;
      const SimTime repair = SimTime::from_ps(failure.repair_ps);
      todo_.insert({repair, Step::kRepair, static_cast<int32_t>(k)});
      todo_.insert({repair + recovery_.reroute, Step::kReroute, 0});
    }
    for (const Todo& one : todo_) plane.wake_at(one.time);
  }

  void wake(ControlPlane& plane) override {
    // What fails at this instant has failed only once this wake is through: restarts, which look at it, are kept for
    // another one.
    bool has_changed = false;
    while (!todo_.empty() && todo_.begin()->time <= plane.now()) {
      const Todo now = *todo_.begin();
      if (now.step == Step::kRestart && has_changed) return plane.wake_at(plane.now());
      todo_.erase(todo_.begin());
      has_changed = has_changed || now.step == Step::kFail || now.step == Step::kRepair;
      take(now, plane);
    }
  }

  void on(const Event& event, ControlPlane& plane) override {
    if (event.kind == kMove) return log_move(event, plane.now());
    if (event.kind == kFlowEnd) return log_end(event.flow, plane.now());
    if (event.kind == kFailure && event.job >= 0) add_restart(event.job, plane.now() + recovery_.restart, plane);
    if (event.kind != kRepair) return;
    for (const int32_t job : std::exchange(waiting_, {})) add_restart(job, plane.now() + recovery_.restart, plane);
  }

  uint32_t subscriptions() const override { return failures_.empty() ? 0 : kFailure | kRepair | kMove | kFlowEnd; }
  folding::Footprint footprint() const override { return {!failures_.empty(), {}}; }

  // Messages that took other links: of each time how many, and of the first of them the ends, the links before and
  // after, and when they were through or took others again, kNever for those still under way.
  workload::Report report(SimTime /*now*/) const override {
    return {{"move_ps", move_ps_},         {"num_moved", num_moved_},           {"moved_src", moved_src_},
            {"moved_dst", moved_dst_},     {"moved_end_ps", moved_end_ps_},     {"moved_num_links", moved_num_links_},
            {"moved_links", moved_links_}, {"left_num_links", left_num_links_}, {"left_links", left_links_}};
  }

 private:
  enum class Step : uint8_t { kRepair, kFail, kReroute, kRestart };  // in this order at one instant
  struct Todo {
    SimTime time;
    Step step;
    int32_t number;  // of a failure, or a job
    bool operator<(const Todo& other) const {
      return std::tie(time, step, number) < std::tie(other.time, other.step, other.number);
    }
  };

  void log_move(const Event& event, SimTime now) {
    if (move_ps_.empty() || move_ps_.back() != now.ps()) {
      move_ps_.push_back(now.ps());
      num_moved_.push_back(0);
    }
    log_end(event.flow, now);
    if (++num_moved_.back() > kMaxMoves) return;
    under_way_[event.flow] = moved_end_ps_.size();
    moved_end_ps_.push_back(kNever);
    moved_src_.push_back(event.src);
    moved_dst_.push_back(event.dst);
    moved_num_links_.push_back(static_cast<int64_t>(event.links.size()));
    moved_links_.insert(moved_links_.end(), event.links.begin(), event.links.end());
    left_num_links_.push_back(static_cast<int64_t>(event.left.size()));
    left_links_.insert(left_links_.end(), event.left.begin(), event.left.end());
  }

  void log_end(int32_t flow, SimTime now) {
    const auto one = under_way_.find(flow);
    if (one == under_way_.end()) return;
    moved_end_ps_[one->second] = now.ps();
    under_way_.erase(one);
  }

  void take(const Todo& todo, ControlPlane& plane) {
    if (todo.step == Step::kFail) plane.fail(failures_[static_cast<size_t>(todo.number)].part);
    if (todo.step == Step::kRepair) plane.repair(failures_[static_cast<size_t>(todo.number)].part);
    if (todo.step == Step::kReroute) plane.renew_routes();
    if (todo.step == Step::kRestart) restart(todo.number, plane);
  }

  void add_restart(int32_t job, SimTime time, ControlPlane& plane) {
    todo_.insert({time, Step::kRestart, job});
    plane.wake_at(time);
  }

  void restart(int32_t job, ControlPlane& plane) {
    std::vector<int32_t> accelerators = plane.accelerators_of(job);
    std::vector<int32_t> left = spares_;
    for (int32_t& accelerator : accelerators) {
      if (!plane.is_failed(accelerator)) continue;
      const auto spare = std::find_if(left.begin(), left.end(), [&plane](int32_t s) { return !plane.is_failed(s); });
      if (spare == left.end()) {
        waiting_.push_back(job);
        return;
      }
      std::swap(*spare, accelerator);  // what it has left is a spare once it is repaired
    }
    spares_ = std::move(left);
    const int32_t num_done = plane.num_iterations_done(job);
    const int32_t checkpoint = recovery_.checkpoint > 0 ? num_done / recovery_.checkpoint * recovery_.checkpoint : 0;
    plane.restart(job, plane.now(), checkpoint, accelerators);
  }

  std::vector<Failure> failures_;
  Recovery recovery_;
  std::vector<int32_t> spares_;
  std::set<Todo> todo_;
  std::vector<int64_t> move_ps_, num_moved_;
  std::vector<int64_t> moved_src_, moved_dst_, moved_end_ps_;  // kMaxMoves of each time
  std::vector<int64_t> moved_num_links_, moved_links_, left_num_links_, left_links_;
  std::unordered_map<int32_t, size_t> under_way_;  // flow -> its place in moved_end_ps_
  std::vector<int32_t> waiting_;                   // jobs that are down for want of a spare
};

int32_t to_id(int64_t value) { return value < 0 || value > INT32_MAX ? -1 : static_cast<int32_t>(value); }

std::vector<Failure> failures_of(const ControllerParams& params) {
  const std::vector<int64_t> kinds = params.integers("kind"), ids = params.integers("id");
  const std::vector<int64_t> fails = params.integers("fail_ps");
  const std::vector<int64_t> repairs =
      params.has("repair_ps") ? params.integers("repair_ps") : std::vector<int64_t>(fails.size(), kNever);
  const std::vector<int64_t> classes =
      params.has("plane_class") ? params.integers("plane_class") : std::vector<int64_t>(fails.size(), 0);
  for (const std::vector<int64_t>* one : {&kinds, &ids, &repairs, &classes}) {
    if (one->size() == fails.size()) continue;
    ROSTAM_THROW(ConfigError, "controller failures got " << fails.size() << " fail_ps and a list of " << one->size()
                                                         << " beside it; all of kind, id, fail_ps, repair_ps and "
                                                            "plane_class have one entry for each failure");
  }
  std::vector<Failure> failures;
  for (size_t k = 0; k < fails.size(); ++k) {
    if (kinds[k] < 0 || kinds[k] > static_cast<int64_t>(PartKind::kSwitch)) {
      ROSTAM_THROW(ConfigError,
                   "controller failures: kind holds " << kinds[k] << "; 0 is an accelerator, 1 a link, 2 a switch");
    }
    if (fails[k] < 0 || (repairs[k] != kNever && repairs[k] <= fails[k])) {
      ROSTAM_THROW(ConfigError, "controller failures: a part fails at " << fails[k] << " ps and is repaired at "
                                                                        << repairs[k]
                                                                        << "; failures are at 0 or later, repairs "
                                                                           "later than theirs, or -1 for never");
    }
    failures.push_back(
        {{static_cast<PartKind>(kinds[k]), to_id(ids[k]), to_id(classes[k])}, SimTime::from_ps(fails[k]), repairs[k]});
  }
  return failures;
}

}  // namespace

std::unique_ptr<Controller> make_failures_controller(const ControllerParams& params) {
  params.check_keys({"kind", "id", "plane_class", "fail_ps", "repair_ps", "reroute_ps", "restart_ps",
                     "checkpoint_iterations", "spares"});
  const auto number = [&params](const char* key, int64_t otherwise) {
    if (!params.has(key)) return otherwise;
    const std::vector<int64_t> given = params.integers(key);
    if (given.size() != 1 || given[0] < 0) {
      ROSTAM_THROW(ConfigError, "controller failures: " << key << " must be one integer >= 0");
    }
    return given[0];
  };
  Recovery recovery;
  recovery.reroute = SimTime::from_ps(number("reroute_ps", 0));
  recovery.restart = SimTime::from_ps(number("restart_ps", 0));
  recovery.checkpoint = to_id(number("checkpoint_iterations", 1));
  if (params.has("spares")) {
    for (const int64_t spare : params.integers("spares")) recovery.spares.push_back(to_id(spare));
  }
  return std::make_unique<FailuresController>(failures_of(params), std::move(recovery));
}

}  // namespace rostam::control
