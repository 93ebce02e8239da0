// PhaseModel: where jobs stand in their iterations, and what holding one of them would gain: their phases move on as
// fast as the links that they share let them.
// Example: model.set_phases(0, phases); model.begin(0); model.advance(time); model.best_hold(1, 10).
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "control/job_phases.h"

namespace rostam::control {

class PhaseModel {
 public:
  explicit PhaseModel(int32_t num_jobs) : jobs_(static_cast<size_t>(num_jobs)) {}

  void set_phases(int32_t job, std::vector<JobPhase> phases);
  // How much of what its phases lose its iterations lose, 1 until it is set: messages may hide behind kernels.
  void set_weight(int32_t job, double weight) { jobs_[static_cast<size_t>(job)].weight = weight; }
  // An iteration of the job begins once it has waited. A job without phases loads nothing.
  void begin(int32_t job, double wait_ps);
  // It sends nothing any more, until it begins again.
  void leave(int32_t job);
  // At the end of its iteration a job stands until it begins the next.
  void advance(double time_ps);

  // Model: a phase runs at the least share that one of its links has for it, 1 over what all would take of it at full
  // speed; iterations follow each other as they are now. A hold costs its own length, and gains what all jobs that
  // share links with this one, or with those that do, lose less up to `horizon` of the longest of their iterations from
  // now; each job's times count in iterations of its own. Tried: the holds, up to an iteration, by which a phase of the
  // job begins as one of another ends, or ends as one begins; if these are more than 72, as many steps of an iteration
  // instead. Of jobs with very short iterations a thousand of these are the longest horizon.
  //
  // Returns: the hold before the iteration that the job begins now [ps] that gains most; 0 where none gains more than
  // 1e-4 of an iteration, or where holding another job when it next begins an iteration would gain more.
  //
  // Cost: O(holds x jobs x phases up to the horizon x links that may be too full).
  //
  // Source: Rajasekaran et al., Cassini (NSDI 2024), sections 3 and 4: time shifts that fill up a circle of an
  // iteration, of the least excess over the bandwidth; without its common multiple of all iterations, which has no
  // equal where they are of any length.
  double best_hold(int32_t job, int32_t horizon);

 private:
  struct Position {
    bool is_there = false;
    bool is_through = false;  // it is at its iteration's end
    double wait_ps = 0;       // before its first phase
    double next_wait_ps = 0;  // before that of its next iteration
    size_t phase = 0;
    double left_ps = 0;  // of it, at full speed
  };
  struct Job {
    std::vector<JobPhase> phases;
    // Of each phase: shared links, numbered anew, and what it takes of them.
    std::vector<std::vector<std::pair<size_t, double>>> loads;
    double period_ps = 0;
    double weight = 1;
    Position at;
  };
  // When phases that load a shared link begin and end, and when each job first ends an iteration.
  struct Edges {
    std::vector<double> begins_ps, ends_ps;
    std::map<int32_t, double> first_end_ps;
  };
  using Positions = std::vector<Position>;

  void enter_phase(const Job& job, Position& at, size_t phase) const;
  void renumber_links();
  std::vector<int32_t> neighbours_of(int32_t job) const;
  double walk(Positions& positions, const std::vector<int32_t>& jobs, double time_ps, bool repeats, Edges* edges) const;
  double walked_ps(const std::vector<int32_t>& jobs, double time_ps) const;
  std::vector<double> holds_to_try(int32_t job, const std::vector<int32_t>& all, const Positions& now,
                                   double start_ps) const;

  std::vector<Job> jobs_;
  size_t num_links_ = 0;  // that phases of several jobs may overfill
  bool is_numbered_ = true;
};

}  // namespace rostam::control
