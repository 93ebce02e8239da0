// Stalls: when messages of a job stand still because nothing carries them, and which of these times an iteration waited
// for: those in which its critical path is in communication of the same category.
// Example: stalls.end_iteration(0, path, last, begin); stalls.fill(result).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "folding/weighted_system.h"
#include "runtime/control_host.h"
#include "runtime/jobs.h"
#include "runtime/messenger.h"

namespace rostam::runtime {

class Stalls : public StandstillWatcher {
 public:
  // All must outlive it. It hears of the messenger's messages from then on.
  Stalls(const folding::WeightedSystem& system, EventQueue& queue, Messenger& messenger, const ControlHost& control);

  void on_begin(int32_t message) override;
  void on_end(int32_t message) override;
  void on_change() override;

  // An iteration of the job ends now, with the task `last`; it began at `begin`. Those of the same job end in order.
  void end_iteration(int32_t job, int32_t iteration, const CriticalPath& path, const CriticalPath::Ref& last,
                     SimTime begin);
  // The job goes on with an iteration.
  void restart(int32_t job, int32_t iteration);

  void fill(workload::SessionResult& result) const;

 private:
  struct Span {
    SimTime begin, end;
    int32_t failure = -1;
  };
  // Messages of one job and category that stand still.
  struct Crowd {
    std::map<int32_t, int32_t> counts;  // by failure
    SimTime since;                      // the counts are what they are
    std::vector<Span> past;             // by time, of the iteration under way
  };
  struct State {
    bool is_still = false;
    int32_t crowd = 0, failure = -1;
  };
  void look(uint64_t round);
  void look_at(int32_t message);
  void set(int32_t message, bool is_still, int32_t failure);
  void settle(Crowd& crowd) const;
  int32_t failure_of(int32_t message) const;
  void schedule();

  const folding::WeightedSystem& system_;
  EventQueue& queue_;
  Messenger& messenger_;
  const ControlHost& control_;
  MemberEvent<Stalls> looks_;
  size_t num_categories_;
  std::vector<Crowd> crowds_;                         // [job * categories + category]
  std::vector<std::vector<workload::Stall>> stalls_;  // [job]
  std::vector<State> states_;                         // of messages
  std::vector<int32_t> begun_;                        // messages, at this instant
  bool is_scheduled_ = false, looks_at_all_ = false;
  bool has_dark_links_ = false;  // else no message that begins stands still
};

}  // namespace rostam::runtime
