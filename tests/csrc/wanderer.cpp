// wanderer: moves what goes from one accelerator to another onto a link of its own, and from that onto the next one,
// whose predecessor it takes away; fails parts, repairs them, and restarts jobs that are cut. Follows flows, phases
// and iterations as well, to see that it hears of them.
#include <algorithm>
#include <map>
#include <utility>

#include "control/registry.h"

namespace rostam::control {

namespace {

struct Moves {
  int32_t src = 0, dst = 0;
  std::vector<int64_t> times;
  std::vector<double> rates;
};

struct Failure {
  Part part;
  SimTime fail, repair;  // never: 0
};

// Of a job that is cut: how long after, with which iteration (-1: the first that has not ended), on what.
struct Answer {
  bool is_given = false;
  SimTime delay;
  int32_t from_iteration = -1;
  std::vector<int32_t> accelerators;
};

class Wanderer : public Controller {
 public:
  Wanderer(Moves moves, std::vector<Failure> failures, Answer answer)
      : moves_(std::move(moves)), failures_(std::move(failures)), answer_(std::move(answer)) {}

  void begin(ControlPlane& plane) override {
    for (const int64_t time : moves_.times) plane.wake_at(SimTime::from_ps(time));
    for (const Failure& failure : failures_) {
      plane.wake_at(failure.fail);
      if (failure.repair > failure.fail) plane.wake_at(failure.repair);
    }
  }

  void wake(ControlPlane& plane) override {
    const auto num_moves = static_cast<size_t>(num_moves_);
    if (num_moves < moves_.times.size() && moves_.times[num_moves] == plane.now().ps()) move(plane);
    for (const Failure& failure : failures_) {
      if (failure.fail == plane.now()) plane.fail(failure.part);
      if (failure.repair == plane.now() && failure.repair > failure.fail) plane.repair(failure.part);
    }
  }

  void on(const Event& event, ControlPlane& plane) override {
    num_started_ += event.kind == kFlowStart;
    num_ended_ += event.kind == kFlowEnd;
    if (event.kind == kFlowWait) waiting_bytes_ += event.bytes;
    if (event.kind == kPhaseStart) ++num_phases_[event.job];
    if (event.kind == kPhaseEnd) --num_phases_[event.job];
    ROSTAM_CHECK(num_ended_ <= num_started_, "a flow ended before it started");
    ROSTAM_CHECK(num_phases_[event.job] >= 0, "a phase ended before it started");
    if (event.kind == kIterationEnd) {
      ROSTAM_CHECK(event.iteration + 1 == plane.num_iterations_done(event.job), "iterations are miscounted");
    }
    if (event.kind == kFlowWait && answer_.delay == SimTime::zero()) {
      const int32_t link = plane.add_link(event.src, event.dst, 1e9);
      plane.set_route(event.src, event.dst, {{link, 1.0}}, SimTime::zero());
      waiting_bytes_ = 0;
    }
    if (event.kind != kFailure || event.job < 0) return;
    num_phases_[event.job] = 0;  // what the job was in is given up
    const std::vector<int32_t> used = plane.accelerators_of(event.job);
    if (event.part.kind == PartKind::kAccelerator) {
      ROSTAM_CHECK(std::count(used.begin(), used.end(), event.part.id) == 1, "the failed accelerator is not the job's");
    }
    if (!answer_.is_given) return;
    const int32_t done = plane.num_iterations_done(event.job);
    plane.restart(event.job, plane.now() + answer_.delay, answer_.from_iteration < 0 ? done : answer_.from_iteration,
                  answer_.accelerators);
  }

  uint32_t subscriptions() const override {
    return kFlowStart | kFlowEnd | kFlowWait | kIterationEnd | kPhaseStart | kPhaseEnd | kFailure | kRepair;
  }
  folding::Footprint footprint() const override { return {true, {}}; }

 private:
  void move(ControlPlane& plane) {
    const double left = plane.backlog(moves_.src, moves_.dst);
    const int32_t link = plane.add_link(moves_.src, moves_.dst, moves_.rates[num_moves_++]);
    plane.set_route(moves_.src, moves_.dst, {{link, 1.0}}, SimTime::zero());
    const double kept = plane.backlog(moves_.src, moves_.dst);
    const auto waiting = static_cast<double>(std::exchange(waiting_bytes_, 0));  // those not cut off start now
    ROSTAM_CHECK(kept > left - 1 && kept < left + waiting + 1, "bytes were lost on the way from one link to another");
    ROSTAM_CHECK(num_started_ > 0 || left == 0, "bytes are left of flows that nobody was told of");
    if (last_ >= 0) {
      ROSTAM_CHECK(plane.link_load(last_) > 0 || left == 0, "the last link carried nothing");
      plane.remove_links({last_});
    }
    last_ = link;
  }

  Moves moves_;
  std::vector<Failure> failures_;
  Answer answer_;
  int32_t num_moves_ = 0;
  int32_t last_ = -1;
  int64_t num_started_ = 0, num_ended_ = 0;
  int64_t waiting_bytes_ = 0;              // of flows that wait for a route
  std::map<int32_t, int64_t> num_phases_;  // that are under way, per job
};

}  // namespace

std::unique_ptr<Controller> make_wanderer_controller(const ControllerParams& params) {
  params.check_keys({"src", "dst", "time_ps", "bytes_per_s", "fail_kind", "fail_id", "fail_ps", "repair_ps",
                     "restart_after_ps", "from_iteration", "accelerators"});
  const auto first = [&params](const char* key) { return static_cast<int32_t>(params.integers(key).at(0)); };
  Moves moves;
  if (params.has("time_ps") || !params.has("fail_ps")) {
    moves = {first("src"), first("dst"), params.integers("time_ps"), params.numbers("bytes_per_s")};
  }
  std::vector<Failure> failures;
  for (size_t k = 0; params.has("fail_ps") && k < params.integers("fail_ps").size(); ++k) {
    const Part part = {static_cast<PartKind>(params.integers("fail_kind").at(k)),
                       static_cast<int32_t>(params.integers("fail_id").at(k))};
    const int64_t repair = params.has("repair_ps") ? params.integers("repair_ps").at(k) : 0;
    failures.push_back({part, SimTime::from_ps(params.integers("fail_ps").at(k)), SimTime::from_ps(repair)});
  }
  Answer answer;
  answer.is_given = params.has("restart_after_ps");
  if (answer.is_given) answer.delay = SimTime::from_ps(params.integers("restart_after_ps").at(0));
  if (params.has("from_iteration")) answer.from_iteration = first("from_iteration");
  if (params.has("accelerators")) {
    for (const int64_t one : params.integers("accelerators")) answer.accelerators.push_back(static_cast<int32_t>(one));
  }
  return std::make_unique<Wanderer>(std::move(moves), std::move(failures), std::move(answer));
}

}  // namespace rostam::control
