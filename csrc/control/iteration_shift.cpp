// iteration_shift: holds jobs at the start of an iteration, so that the messages of jobs that share links go at
// different times. From each iteration it learns when the job sends and what that takes of links; before the next one
// it holds the job by what gains most (phase_model.h), which is nothing where links are not too full. Once iterations
// of equal length have found their places nothing is held any more; others are held a little from time to time. Jobs
// that share no link are never held. It is not told of jobs beforehand: the first iteration of each runs as it comes,
// and the first hold shows what collisions cost, since messages may hide behind kernels (job_profile.h).
// Source: Rajasekaran et al., Cassini: Network-Aware Job Scheduling in Machine Learning Clusters (NSDI 2024), which
// knows all jobs' profiles ahead and delays each once, again where it drifts; that decision is a scheduler's there.
#include <memory>
#include <unordered_map>
#include <vector>

#include "control/job_profile.h"
#include "control/phase_model.h"
#include "control/registry.h"

namespace rostam::control {

namespace {

// Own: iterations, of the longest of all jobs that meet, in which a hold must have earned back what it costs.
constexpr int64_t kHorizon = 10;
constexpr int64_t kMostHorizon = 1000;

class IterationShift : public Controller {
 public:
  explicit IterationShift(int32_t horizon) : horizon_(horizon) {}

  void begin(ControlPlane& plane) override {
    jobs_.resize(static_cast<size_t>(plane.num_jobs()));
    model_ = std::make_unique<PhaseModel>(plane.num_jobs());
  }

  void on(const Event& event, ControlPlane& plane) override {
    switch (event.kind) {
      case kFlowStart:
        return start_message(event, plane);
      case kFlowEnd:
        return end_message(event, plane);
      case kIterationStart:
        return start_iteration(event.job, event.iteration, plane);
      case kIterationEnd:
        jobs_[event.job].ended = plane.now();
        jobs_[event.job].num_ended = event.iteration + 1;
        return;
      default:  // a job is cut: it begins anew
        if (event.job >= 0) jobs_[event.job].is_known = false;
    }
  }

  uint32_t subscriptions() const override { return kFlowStart | kFlowEnd | kIterationStart | kIterationEnd | kFailure; }
  folding::Footprint footprint() const override {
    folding::Footprint all;
    all.reads_messages = true;
    return all;
  }

  // Of each hold: when it begins, its job, the iteration that waits, and for how long.
  workload::Report report(SimTime /*now*/) const override {
    return {{"time_ps", time_ps_}, {"job", job_}, {"iteration", iteration_}, {"held_ps", held_ps_}};
  }

 private:
  struct Job {
    BurstLog log;
    JobProfile profile;
    bool is_known = false;  // an iteration of it runs, since:
    SimTime begun;
    SimTime ended;  // its last iteration
    int32_t num_begun = 0, num_ended = 0;
    int32_t last_hold = -1;  // the iteration that was held last
  };

  void start_message(const Event& event, ControlPlane& plane) {
    if (event.job < 0 || event.bytes == 0) return;
    under_way_[event.flow] = event.job;
    jobs_[event.job].log.start(plane.now(), plane.link_bytes_of(event.flow));
  }

  void end_message(const Event& event, const ControlPlane& plane) {
    if (under_way_.erase(event.flow) > 0) jobs_[event.job].log.end(plane.now());
  }

  void start_iteration(int32_t number, int32_t iteration, ControlPlane& plane) {
    Job& job = jobs_[number];
    advance(plane);
    const bool follows = job.is_known && iteration == job.num_begun && plane.now() > job.begun;
    if (follows) learn(number, plane);
    job.num_begun = iteration + 1;
    job.num_ended = std::min(job.num_ended, iteration);
    for (size_t j = 0; j < jobs_.size(); ++j) {
      const bool is_through = jobs_[j].num_ended == jobs_[j].num_begun && jobs_[j].ended < plane.now();
      if (is_through) model_->leave(static_cast<int32_t>(j));
    }
    model_->begin(number, 0);
    // Where one hold follows another, it must pay by the time of the next.
    const int32_t horizon = std::min(horizon_, job.last_hold < 0 ? horizon_ : std::max(1, iteration - job.last_hold));
    const SimTime held = SimTime::from_whole_ps(std::ceil(model_->best_hold(number, horizon)));
    job.is_known = true;
    job.begun = plane.now() + held;
    if (held == SimTime::zero()) return;
    job.last_hold = iteration;
    model_->begin(number, static_cast<double>(held.ps()));
    plane.hold(number, iteration, job.begun);
    time_ps_.push_back(plane.now().ps());
    job_.push_back(number);
    iteration_.push_back(iteration);
    held_ps_.push_back(held.ps());
  }

  void advance(const ControlPlane& plane) {
    model_->advance(static_cast<double>((plane.now() - advanced_).ps()));
    advanced_ = plane.now();
  }

  // What the job's last iteration was like; forgets messages of before all iterations that run.
  void learn(int32_t number, const ControlPlane& plane) {
    SimTime first = plane.now();
    std::vector<const BurstLog*> others;
    for (size_t j = 0; j < jobs_.size(); ++j) {
      if (jobs_[j].is_known) first = std::min(first, jobs_[j].begun);
      if (static_cast<int32_t>(j) != number) others.push_back(&jobs_[j].log);
    }
    const auto capacity = [&plane](int32_t link) { return plane.capacity(link); };
    const Period iteration = {jobs_[number].begun, plane.now()};
    JobProfile& profile = jobs_[number].profile;
    if (profile.learn(phases_of(jobs_[number].log, iteration, others, capacity), iteration)) {
      model_->set_phases(number, profile.phases());
    }
    model_->set_weight(number, profile.weight());
    for (Job& job : jobs_) job.log.forget(first);
  }

  int32_t horizon_;
  std::vector<Job> jobs_;
  std::unique_ptr<PhaseModel> model_;
  SimTime advanced_;                                // the model, up to
  std::unordered_map<int32_t, int32_t> under_way_;  // the job of each message
  std::vector<int64_t> time_ps_, job_, iteration_, held_ps_;
};

}  // namespace

std::unique_ptr<Controller> make_iteration_shift_controller(const ControllerParams& params) {
  params.check_keys({"horizon"});
  const int64_t horizon = params.has("horizon") ? params.integer("horizon") : kHorizon;
  if (horizon < 1 || horizon > kMostHorizon) {
    ROSTAM_THROW(ConfigError, "controller iteration_shift: horizon is " << horizon << "; it must be 1 to "
                                                                        << kMostHorizon << " iterations");
  }
  return std::make_unique<IterationShift>(static_cast<int32_t>(horizon));
}

}  // namespace rostam::control
