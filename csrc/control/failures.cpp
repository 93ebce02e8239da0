// failures: parts that fail at given times and are repaired at others, and the response to them. Routes are chosen
// anew among what works a while after each failure and repair. A job that is cut is down for three phases: until its
// loss is detected; while it waits for a repair, if there is no spare; and for its restart, which ends with its last
// checkpoint, spares in place of what it has lost. An accelerator that it is to go on with and that fails meanwhile
// begins the three anew. Without a spare or a repair the run ends in an error. Source: MODEL F19.
#include <algorithm>
#include <map>
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
  SimTime detection;       // from the loss of an accelerator until it is known
  SimTime restart;         // from then, or the repair that a job waits for, until it goes on
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
    // What fails at this instant has failed only once this wake is through: steps that look at it are kept for another.
    while (!todo_.empty() && todo_.begin()->time <= plane.now()) {
      const Todo now = *todo_.begin();
      const bool looks = now.step == Step::kPlace || now.step == Step::kRestart;
      if (looks && !changing_.empty()) return plane.wake_at(plane.now());
      todo_.erase(todo_.begin());
      take(now, plane);
    }
  }

  void on(const Event& event, ControlPlane& plane) override {
    if (event.kind == kMove) return log_move(event, plane.now());
    if (event.kind == kFlowEnd) return log_end(event.flow, plane.now());
    const auto changed = changing_.find(key_of(event.part));
    if (changed != changing_.end()) changing_.erase(changed);
    if (event.kind == kFailure && event.job >= 0) down_[event.job].accelerators = plane.accelerators_of(event.job);
    if (event.kind == kFailure) return note_failure(event.failure, plane);
    if (event.kind == kRepair) note_repair(event.failure, plane);
  }

  uint32_t subscriptions() const override { return failures_.empty() ? 0 : kFailure | kRepair | kMove | kFlowEnd; }
  folding::Footprint footprint() const override { return {!failures_.empty(), {}}; }

  // Messages that took other links: of each time how many, and of the first of them the ends, the links before and
  // after, and when they were through or took others again, kNever for those still under way. Jobs that were down: the
  // phases, each put down to the number of the failure that holds the job in it.
  workload::Report report(SimTime /*now*/) const override {
    return {{"down_job", down_job_},
            {"down_phase", down_phase_},
            {"down_begin_ps", down_begin_ps_},
            {"down_end_ps", down_end_ps_},
            {"down_failure", down_failure_},
            {"move_ps", move_ps_},
            {"num_moved", num_moved_},
            {"moved_src", moved_src_},
            {"moved_dst", moved_dst_},
            {"moved_end_ps", moved_end_ps_},
            {"moved_num_links", moved_num_links_},
            {"moved_links", moved_links_},
            {"left_num_links", left_num_links_},
            {"left_links", left_links_}};
  }

 private:
  enum class Step : uint8_t { kRepair, kFail, kReroute, kPlace, kRestart };  // in this order at one instant
  enum class Phase : uint8_t { kDetection, kWaiting, kRestart };
  struct Todo {
    SimTime time;
    Step step;
    int32_t number;  // of a failure, or a job
    bool operator<(const Todo& other) const {
      return std::tie(time, step, number) < std::tie(other.time, other.step, other.number);
    }
  };

  using Key = std::tuple<PartKind, int32_t, int32_t>;
  static Key key_of(const Part& part) { return {part.kind, part.id, part.plane_class}; }

  // A job that is down, from its cut until it goes on.
  struct Down {
    std::vector<int32_t> accelerators;  // that it is to go on with, as far as they work
    std::map<int32_t, int32_t> lost;    // those that do not, and the failures that took them
    Phase phase = Phase::kDetection;
    SimTime begin;         // of the phase
    SimTime end;           // of the phase; unknown while the job waits
    int32_t failure = -1;  // that holds it in the phase
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
    if (todo.step == Step::kReroute) plane.renew_routes();
    if (todo.step < Step::kReroute) {
      const Part& part = failures_[static_cast<size_t>(todo.number)].part;
      changing_.insert(key_of(part));
      return todo.step == Step::kFail ? plane.fail(part) : plane.repair(part);
    }
    const auto one = down_.find(todo.number);
    if (todo.step == Step::kReroute || one == down_.end()) return;
    const bool is_due = one->second.end == todo.time;  // else the phase was begun anew meanwhile
    if (todo.step == Step::kRestart && one->second.phase == Phase::kRestart && is_due) restart(todo.number, plane);
    if (todo.step != Step::kPlace || one->second.phase == Phase::kRestart) return;
    if (one->second.phase == Phase::kWaiting || is_due) place(todo.number, plane);
  }

  void add(Step step, int32_t job, SimTime time, ControlPlane& plane) {
    todo_.insert({time, step, job});
    plane.wake_at(time);
  }

  // Jobs that the failure takes an accelerator from, though they are down already, detect it as they did the first.
  void note_failure(int32_t failure, ControlPlane& plane) {
    for (auto& [job, down] : down_) {
      bool is_new = false;
      for (const int32_t accelerator : down.accelerators) {
        if (plane.is_failed(accelerator)) is_new = down.lost.emplace(accelerator, failure).second || is_new;
      }
      if (!is_new) continue;
      begin_phase(job, Phase::kDetection, failure, plane.now() + recovery_.detection, plane.now());
      add(Step::kPlace, job, down.end, plane);
    }
  }

  // What another failure still holds is that one's from now on. It is known to be lost: nothing has to be detected.
  void note_repair(int32_t failure, ControlPlane& plane) {
    for (auto& [job, down] : down_) {
      for (auto one = down.lost.begin(); one != down.lost.end();) {
        if (!plane.is_failed(one->first)) {
          one = down.lost.erase(one);
          continue;
        }
        if (one->second == failure) one->second = plane.failure_of(one->first);
        ++one;
      }
    }
    look_for_spares(plane);
  }

  void look_for_spares(ControlPlane& plane) {
    for (const auto& [job, down] : down_) {
      if (down.phase == Phase::kWaiting) add(Step::kPlace, job, plane.now(), plane);
    }
  }

  // Spares take the place of lost accelerators, and the restart begins; where they are too few the job waits.
  void place(int32_t job, ControlPlane& plane) {
    Down& down = down_[job];
    std::vector<int32_t> accelerators = down.accelerators, left = spares_;
    int32_t missing = -1;  // the first failure that nothing makes up for
    for (int32_t& accelerator : accelerators) {
      if (!plane.is_failed(accelerator)) continue;
      const auto spare = std::find_if(left.begin(), left.end(), [&](int32_t one) { return is_free(one, job, plane); });
      if (spare != left.end()) {
        std::swap(*spare, accelerator);  // what it has left is a spare once it is repaired
      } else if (missing < 0 || down.lost[accelerator] < missing) {
        missing = down.lost[accelerator];
      }
    }
    if (missing >= 0) return begin_phase(job, Phase::kWaiting, missing, plane.now(), plane.now());
    spares_ = std::move(left);
    down.accelerators = std::move(accelerators);
    down.lost.clear();
    begin_phase(job, Phase::kRestart, down.failure, plane.now() + recovery_.restart, plane.now());
    add(Step::kRestart, job, down.end, plane);
  }

  // Another job that is down has what it lost, or left, until it goes on elsewhere.
  bool is_free(int32_t spare, int32_t job, const ControlPlane& plane) const {
    if (plane.is_failed(spare)) return false;
    return std::all_of(down_.begin(), down_.end(), [&](const std::pair<const int32_t, Down>& other) {
      const std::vector<int32_t> held = plane.accelerators_of(other.first);
      return other.first == job || std::find(held.begin(), held.end(), spare) == held.end();
    });
  }

  void restart(int32_t job, ControlPlane& plane) {
    const int32_t num_done = plane.num_iterations_done(job);
    const int32_t checkpoint = recovery_.checkpoint > 0 ? num_done / recovery_.checkpoint * recovery_.checkpoint : 0;
    plane.restart(job, plane.now(), checkpoint, down_[job].accelerators);
    log_phase(job, plane.now());
    down_.erase(job);
    look_for_spares(plane);
  }

  void begin_phase(int32_t job, Phase phase, int32_t failure, SimTime end, SimTime now) {
    Down& down = down_[job];
    const bool is_first = down.failure < 0;
    if (!is_first) log_phase(job, now);
    down.phase = phase;
    down.failure = failure;
    down.begin = now;
    down.end = end;
  }

  void log_phase(int32_t job, SimTime now) {
    const Down& down = down_[job];
    if (down.begin == now) return;
    down_job_.push_back(job);
    down_phase_.push_back(static_cast<int64_t>(down.phase));
    down_begin_ps_.push_back(down.begin.ps());
    down_end_ps_.push_back(now.ps());
    down_failure_.push_back(down.failure);
  }

  std::vector<Failure> failures_;
  Recovery recovery_;
  std::vector<int32_t> spares_;
  std::set<Todo> todo_;
  std::multiset<Key> changing_;  // parts that fail, or are repaired, once what happens now is through
  std::vector<int64_t> move_ps_, num_moved_;
  std::vector<int64_t> moved_src_, moved_dst_, moved_end_ps_;  // kMaxMoves of each time
  std::vector<int64_t> moved_num_links_, moved_links_, left_num_links_, left_links_;
  std::unordered_map<int32_t, size_t> under_way_;  // flow -> its place in moved_end_ps_
  std::map<int32_t, Down> down_;                   // jobs that are
  std::vector<int64_t> down_job_, down_phase_, down_begin_ps_, down_end_ps_, down_failure_;
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
  params.check_keys({"kind", "id", "plane_class", "fail_ps", "repair_ps", "reroute_ps", "detection_ps", "restart_ps",
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
  recovery.detection = SimTime::from_ps(number("detection_ps", 0));
  recovery.restart = SimTime::from_ps(number("restart_ps", 0));
  recovery.checkpoint = to_id(number("checkpoint_iterations", 1));
  if (params.has("spares")) {
    for (const int64_t spare : params.integers("spares")) recovery.spares.push_back(to_id(spare));
  }
  return std::make_unique<FailuresController>(failures_of(params), std::move(recovery));
}

}  // namespace rostam::control
