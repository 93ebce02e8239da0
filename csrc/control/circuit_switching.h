// CircuitSwitching: sets circuits of a running network anew as its traffic changes (MODEL G). Circuits that stay carry
// on; those that change are dark for the reconfiguration delay, and messages in flight on them wait.
// Example: ocs_circuits.cpp and ring_wavelengths.cpp, which bring the planner.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "circuits/planner_around.h"
#include "circuits/relays.h"
#include "control/controller.h"
#include "control/iteration_phases.h"
#include "control/pair_traffic.h"
#include "control/params.h"
#include "control/schedule_trial.h"

namespace rostam::control {

// When circuits are set anew.
enum class SwitchingMode : uint8_t { kPeriodic, kScheduled };

// (name, one line for lists) of each.
std::vector<std::pair<std::string, std::string>> switching_modes();

// From `fail` on the circuits through a part are dark, until its repair or until they are set around it.
struct OpticalFailure {
  circuits::OpticalPart part;
  SimTime fail;
  SimTime repair = SimTime::never();
};

struct SwitchingOptions {
  SwitchingMode mode = SwitchingMode::kPeriodic;
  Estimator estimator = Estimator::kLastWindow;
  SimTime period;           // between two decisions, and the estimators' window; never(): none is taken
  SimTime delay;            // of a reconfiguration
  SimTime reporting_delay;  // a decision knows the traffic of so long ago
  double circuit_bytes_per_s = 0;
  bool enable_relay = false;  // pairs without a circuit send over others' circuits; else they wait
  SimTime circuit_latency;    // of each circuit of a relayed message, unless pairs have their own
  bool is_recorded = false;   // report every setting
  bool is_clocked = false;    // report what decisions took on this processor, which is not the same in each run
  std::vector<OpticalFailure> failures;
  SimTime reroute;  // from a failure or repair until circuits are planned anew (MODEL F19)
};

// Servers whose accelerators share circuits, next to an electrical network: pairs are then pairs of servers, and
// messages of accelerators go over the circuits of their servers or, while none of these is lit, over the network.
struct SharingServers {
  int32_t size = 1;                               // accelerators of a server, numbered consecutively
  std::vector<int32_t> up, down;                  // links to and from its server of every accelerator
  std::vector<int32_t> network_up, network_down;  // links to and from the network of every server
  SimTime circuit_latency, network_latency;       // of whole paths
  double network_bytes_per_s = 0;                 // of each server
  bool has_network() const { return !network_up.empty(); }
};

// What a switched fabric is: pairs that may send, the engine link that stands for each, circuits that are set at first.
struct SwitchedPairs {
  circuits::PairList pairs;
  std::vector<int32_t> links;
  std::vector<circuits::Circuit> initial;
  std::vector<double> iteration_bytes;
  std::vector<SimTime> latency;    // of a circuit of each; empty where all have options' circuit_latency
  std::vector<PairMessage> known;  // messages that are known ahead
  int32_t rail_size = 1;           // accelerators of a server that are each on a rail, see PairTraffic
  SharingServers servers;
};

// The parameters that every controller of circuits takes, and those two as read from them.
extern const std::vector<std::string> kSwitchingKeys;
SwitchedPairs switched_pairs(const ControllerParams& params);
SwitchingOptions switching_options(const ControllerParams& params);

class CircuitSwitching : public Controller {
 public:
  CircuitSwitching(SwitchedPairs given, const SwitchingOptions& options,
                   std::unique_ptr<circuits::PlannerAround> planner);

  void begin(ControlPlane& plane) override;
  void wake(ControlPlane& plane) override;
  void on(const Event& event, ControlPlane& plane) override;
  uint32_t subscriptions() const override { return kFlowStart | kFlowEnd | kIterationEnd | kFailure; }
  bool is_settled() const override;
  folding::Footprint footprint() const override { return {true, {}}; }
  workload::Report report(SimTime now) const override;

 private:
  using Demand = std::vector<double>;
  using Action = std::function<void(ControlPlane&)>;

  void at(SimTime time, ControlPlane& plane, Action action);
  void await_snapshot(SimTime earliest, ControlPlane& plane);
  void take_snapshot(ControlPlane& plane);
  void react(ControlPlane& plane);
  void serve_starved(ControlPlane& plane);
  void end_iteration(int32_t job, int32_t iteration, ControlPlane& plane);
  std::vector<Phase> phases_of(const std::vector<PairMessage>& messages) const;
  void follow(int32_t job, ControlPlane& plane);
  std::vector<int64_t> num_active() const;
  void give_up_phases(int32_t job, ControlPlane& plane);
  void restore(ControlPlane& plane);
  void cut(int32_t job, ControlPlane& plane);
  void begin_with_phases();
  Demand phase_demand() const;

  void consider(const Demand& demand, ControlPlane& plane);
  void decide(const Demand& demand, ControlPlane& plane, bool has_to_pay = false);
  void decide_starved(ControlPlane& plane);
  const circuits::Setting& setting_for(const Demand& demand);
  // Whether a setting whose slowest pair has this ratio, at most or in fact, is worth the dark time before it.
  bool pays(double ratio, const Demand& demand) const;
  bool apply(const circuits::Setting& wanted, ControlPlane& plane);  // whether anything changes
  void light(ControlPlane& plane);
  void strike(const circuits::OpticalPart& part, int32_t change, ControlPlane& plane);
  void plan_around(ControlPlane& plane);
  bool is_broken(const circuits::Circuit& one) const;
  // Own circuits, or others' to relay over, some of them dark perhaps.
  bool has_way(int32_t pair) const { return count_[pair] > 0 || !relays_[pair].empty(); }
  void count_lit();
  void set_capacities(ControlPlane& plane);
  void set_relays(ControlPlane& plane);
  void set_ways(ControlPlane& plane);
  SimTime latency_of(int32_t pair, const circuits::Relay& relay) const;
  void count_time(SimTime now);
  void record(const circuits::Setting& changed);

  circuits::PairList pairs_;
  std::vector<int32_t> links_;
  std::vector<SimTime> latency_;
  SharingServers servers_;
  bool begins_evenly_;  // with circuits that are not for a demand
  SwitchingOptions options_;
  std::unique_ptr<circuits::PlannerAround> planner_;
  PairTraffic traffic_;

  circuits::Setting setting_;          // dark ones included
  circuits::Setting once_;             // those of before any decision
  circuits::Setting changing_;         // that a reconfiguration under way will light
  std::vector<int32_t> num_failures_;  // of each place of light; empty where nothing fails
  std::vector<int32_t> count_, lit_;   // circuits of each pair, and those of them that carry
  std::vector<int32_t> capacity_of_;   // circuits' worth that its link is set to; -1 before the first time
  std::vector<std::vector<circuits::RelayHop>> relays_;  // of each pair; none for its own link
  std::vector<uint8_t> is_on_network_;                   // pairs whose messages take the network
  bool is_dark_ = false;                                 // a reconfiguration is under way
  int64_t num_served_ = 0, num_starved_ = 0;             // messages under way of pairs with a way, and without
  bool has_waiting_ = false;                             // for its end
  bool is_to_be_restored_ = false;                       // then
  Demand waiting_;
  Demand demand_;  // of the last decision; of an iteration before it

  std::map<std::vector<int16_t>, circuits::Setting> known_settings_;  // by quantised demand
  std::vector<int16_t> last_quantised_;
  double reached_ = 1;  // of the most that a setting could give the slowest pair, by the last one found

  double clocked_s_ = 0;  // of decisions, on this processor
  std::map<std::pair<SimTime, int64_t>, Action> agenda_;
  int64_t num_actions_ = 0;
  bool is_snapshot_due_ = false;
  int64_t started_at_snapshot_ = -1, changed_at_snapshot_ = -1, num_still_ = 0;
  Demand backlog_at_snapshot_;

  std::vector<PairMessage> known_;
  std::map<int32_t, PhaseFollower> followers_;   // of each job
  std::map<int32_t, std::vector<Phase>> found_;  // of each job
  ScheduleTrial* trial_ = nullptr;               // of a job that is alone, with all that set its circuits

  int64_t num_decisions_ = 0, num_reused_ = 0, num_changed_ = 0;
  int64_t num_dark_now_ = 0, num_broken_now_ = 0;
  SimTime counted_until_, last_message_;
  double lit_s_ = 0, dark_s_ = 0, failed_s_ = 0;  // circuits x time; dark for failed parts counted in both
  std::vector<int64_t> begin_ps_, end_ps_, changed_;
  std::vector<int64_t> recorded_, recorded_pair_, recorded_channel_, recorded_is_changed_;
};

}  // namespace rostam::control
