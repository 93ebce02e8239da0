#include "control/circuit_switching.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/errors.h"

namespace rostam::control {

namespace {

// Demands are alike, and get the settings of before, if every pair's differs by less than half of a 16th of an octave
// (2%) from the largest's; amounts below 2^-20 of that count as so much.
constexpr double kStepsPerOctave = 16;
constexpr double kOctaves = 20;
constexpr int16_t kNone = INT16_MIN;
// Of a pair whose messages' way has not been set.
constexpr uint8_t kUnknownWay = 2;
// Settings that are kept; training has a handful of phases.
constexpr size_t kMaxKnown = 256;

// That this thread has had of a processor.
double thread_s() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::vector<int16_t> quantise(const std::vector<double>& demand) {
  const double most = *std::max_element(demand.begin(), demand.end());
  std::vector<int16_t> steps;
  steps.reserve(demand.size());
  for (const double bytes : demand) {
    const double octaves = bytes > 0 ? std::max(std::log2(bytes / most), -kOctaves) : 0;
    steps.push_back(bytes > 0 ? static_cast<int16_t>(std::lround(octaves * kStepsPerOctave)) : kNone);
  }
  return steps;
}

}  // namespace

CircuitSwitching::CircuitSwitching(SwitchedPairs given, const SwitchingOptions& options,
                                   std::unique_ptr<circuits::PlannerAround> planner)
    : pairs_(given.pairs),
      links_(std::move(given.links)),
      latency_(std::move(given.latency)),
      servers_(std::move(given.servers)),
      begins_evenly_(servers_.has_network() || given.rail_size > 1),
      options_(options),
      planner_(std::move(planner)),
      traffic_(given.pairs, std::move(given.iteration_bytes), given.known, servers_.size, given.rail_size),
      setting_(std::move(given.initial)),
      count_(circuits::count_circuits(setting_, links_.size())),
      lit_(links_.size(), 0),
      capacity_of_(links_.size(), -1),
      relays_(links_.size()),
      is_on_network_(links_.size(), kUnknownWay),
      known_(std::move(given.known)) {
  once_ = setting_;
  demand_ = traffic_.iteration_bytes();
  if (!options_.failures.empty()) num_failures_.assign(planner_->paths().num_places(), 0);
  count_lit();
}

bool CircuitSwitching::is_settled() const { return trial_ == nullptr || trial_->is_over(); }

void CircuitSwitching::begin(ControlPlane& plane) {
  for (const OpticalFailure& one : options_.failures) {
    planner_->paths().places_of(one.part);  // throws if there is no such part
    at(one.fail, plane, [this, part = one.part](ControlPlane& p) { strike(part, 1, p); });
    at(one.fail + options_.reroute, plane, [this](ControlPlane& p) { plan_around(p); });
    if (one.repair == SimTime::never()) continue;
    at(one.repair, plane, [this, part = one.part](ControlPlane& p) { strike(part, -1, p); });
    at(one.repair + options_.reroute, plane, [this](ControlPlane& p) { plan_around(p); });
  }
  const bool is_scheduled = options_.mode == SwitchingMode::kScheduled;
  if (is_scheduled && !known_.empty()) begin_with_phases();
  if (is_scheduled && plane.num_jobs() == 1) trial_ = &plane.schedule_trial();
  set_capacities(plane);
  set_relays(plane);
  record({});
  if (!is_scheduled && options_.period > SimTime::zero()) await_snapshot(SimTime::zero(), plane);
}

// What is known ahead has the circuits of its first phase before anything runs.
void CircuitSwitching::begin_with_phases() {
  const std::vector<Phase> phases = phases_of(known_);
  followers_[0].follow(phases, num_active());
  if (phases.size() == 1 && !begins_evenly_) return;
  demand_ = phase_demand();
  setting_ = planner_->change(setting_for(demand_), setting_).now;
  count_ = circuits::count_circuits(setting_, links_.size());
  count_lit();
}

void CircuitSwitching::at(SimTime time, ControlPlane& plane, Action action) {
  agenda_.emplace(std::make_pair(time, num_actions_++), std::move(action));
  plane.wake_at(time);
}

void CircuitSwitching::wake(ControlPlane& plane) {
  const double begin = options_.is_clocked ? thread_s() : 0;
  while (!agenda_.empty() && agenda_.begin()->first.first <= plane.now()) {
    const Action action = std::move(agenda_.begin()->second);
    agenda_.erase(agenda_.begin());
    action(plane);
  }
  if (options_.is_clocked) clocked_s_ += thread_s() - begin;
}

void CircuitSwitching::on(const Event& event, ControlPlane& plane) {
  if (event.kind == kIterationEnd) return end_iteration(event.job, event.iteration, plane);
  if (event.kind == kFailure) return event.job >= 0 ? cut(event.job, plane) : void();
  const int32_t pair = traffic_.find(event.src, event.dst);
  if (pair < 0) return;
  last_message_ = plane.now();
  int64_t& num_active = has_way(pair) ? num_served_ : num_starved_;
  if (event.kind == kFlowStart) {
    traffic_.on_start(pair, static_cast<double>(event.bytes), plane.now());
    ++num_active;
  } else {
    traffic_.on_end(pair, plane.now());
    --num_active;
  }
  if (options_.mode == SwitchingMode::kPeriodic) return react(plane);
  bool is_next_phase = false;
  if (event.kind == kFlowEnd) {
    for (auto& [job, follower] : followers_) {
      const bool is_next = follower.is_known() && follower.on_end(pair);
      const bool is_through = plane.num_jobs() == 0 && follower.is_known() && follower.is_at_first();
      is_next_phase = (is_next && !is_through) || is_next_phase;
    }
  }
  // Once what happens now is through: a device may hand over the next message at once.
  if (is_next_phase) at(plane.now(), plane, [this](ControlPlane& p) { decide(phase_demand(), p); });
  serve_starved(plane);
}

// Periodic decisions go on while there is traffic.
void CircuitSwitching::react(ControlPlane& plane) {
  if (is_snapshot_due_ || options_.period == SimTime::never()) return;
  if (options_.period > SimTime::zero()) return await_snapshot(plane.now(), plane);
  is_snapshot_due_ = true;
  at(plane.now(), plane, [this](ControlPlane& p) { take_snapshot(p); });
}

// The next decision is at a whole number of periods; what it knows is of so long before.
void CircuitSwitching::await_snapshot(SimTime earliest, ControlPlane& plane) {
  if (options_.period == SimTime::never()) return;
  const int64_t period = options_.period.ps(), ago = options_.reporting_delay.ps();
  const int64_t number = std::max<int64_t>(1, (earliest.ps() + ago + period - 1) / period);
  SimTime time = options_.period.times(number) - options_.reporting_delay;
  while (time < earliest || time < SimTime::zero()) time += options_.period;
  is_snapshot_due_ = true;
  at(time, plane, [this](ControlPlane& p) { take_snapshot(p); });
}

void CircuitSwitching::take_snapshot(ControlPlane& plane) {
  is_snapshot_due_ = false;
  Demand backlog = traffic_.backlog(plane);
  Demand demand = traffic_.estimate(options_.estimator, backlog, plane.now(), options_.period);
  const size_t num_before = begin_ps_.size();
  if (options_.reporting_delay == SimTime::zero()) {
    consider(demand, plane);
  } else {
    at(plane.now() + options_.reporting_delay, plane,
       [this, known = std::move(demand)](ControlPlane& p) { consider(known, p); });
  }
  if (options_.period == SimTime::zero()) return;
  // Where nothing moves, and all decisions of before are taken, nothing will until a message starts or ends.
  if (begin_ps_.size() != num_before) backlog = traffic_.backlog(plane);  // circuits, and routes, are others now
  const bool is_still = traffic_.num_started() == started_at_snapshot_ && backlog == backlog_at_snapshot_ &&
                        num_changed_ == changed_at_snapshot_ && !is_dark_;
  num_still_ = is_still ? num_still_ + 1 : 0;
  started_at_snapshot_ = traffic_.num_started();
  changed_at_snapshot_ = num_changed_;
  backlog_at_snapshot_ = std::move(backlog);
  const int64_t num_pending = options_.reporting_delay.ps() / options_.period.ps() + 1;
  if (num_still_ <= num_pending) await_snapshot(plane.now() + SimTime::from_ps(1), plane);
}

// Where all that is under way waits for circuits, and no decision is due in any case, what waits gets them.
void CircuitSwitching::serve_starved(ControlPlane& plane) {
  const bool decides_later = options_.mode == SwitchingMode::kPeriodic && options_.period > SimTime::zero();
  if (decides_later || is_dark_ || servers_.has_network() || num_starved_ == 0 || num_served_ > 0) return;
  at(plane.now(), plane, [this](ControlPlane& p) { decide_starved(p); });
}

// Where that changes nothing, for failed parts say, nothing will until something else happens.
void CircuitSwitching::decide_starved(ControlPlane& plane) {
  if (num_starved_ == 0 || num_served_ > 0) return;
  const Demand backlog = traffic_.backlog(plane);
  if (is_dark_ || std::none_of(backlog.begin(), backlog.end(), [](double bytes) { return bytes > 0; })) {
    return decide(backlog, plane);
  }
  ++num_decisions_;
  if (apply(setting_for(backlog), plane)) serve_starved(plane);
}

void CircuitSwitching::end_iteration(int32_t job, int32_t iteration, ControlPlane& plane) {
  const std::vector<PairMessage> messages = traffic_.end_iteration(plane.accelerators_of(job), plane.now());
  if (options_.mode != SwitchingMode::kScheduled) return;
  if (trial_ == nullptr) {
    if (messages.empty()) return;
    const auto follower = followers_.find(job);
    if (follower != followers_.end() && follower->second.is_same(messages)) return;
    found_[job] = phases_of(messages);
    return follow(job, plane);
  }
  switch (trial_->on_end(plane.now(), iteration)) {
    case ScheduleTrial::Next::kFind:
      found_[job] = phases_of(messages);
      if (found_[job].size() > 1 || begins_evenly_) return;
      trial_->end();
      return follow(job, plane);
    case ScheduleTrial::Next::kFollow:
      return follow(job, plane);
    case ScheduleTrial::Next::kGiveUp:
      return give_up_phases(job, plane);
    default:
      return;
  }
}

std::vector<Phase> CircuitSwitching::phases_of(const std::vector<PairMessage>& messages) const {
  const PhaseCosts costs = {options_.circuit_bytes_per_s, options_.delay.seconds(), servers_.network_bytes_per_s};
  return find_phases(messages, *planner_, pairs_, costs);
}

// Where every job has a single phase circuits are set for it already, unless they begin evenly spread.
void CircuitSwitching::follow(int32_t job, ControlPlane& plane) {
  followers_[job].follow(found_[job], num_active());
  const bool is_set = std::all_of(found_.begin(), found_.end(), [](const auto& one) { return one.second.size() == 1; });
  if (!is_set || begins_evenly_) at(plane.now(), plane, [this](ControlPlane& p) { decide(phase_demand(), p); });
}

std::vector<int64_t> CircuitSwitching::num_active() const {
  std::vector<int64_t> found;
  for (int32_t p = 0; p < pairs_.size(); ++p) found.push_back(traffic_.num_active(p));
  return found;
}

// Back to the circuits of before the first phase, around what has failed since.
void CircuitSwitching::give_up_phases(int32_t job, ControlPlane& plane) {
  followers_.erase(job);
  at(plane.now(), plane, [this](ControlPlane& p) { restore(p); });
}

void CircuitSwitching::restore(ControlPlane& plane) {
  is_to_be_restored_ = is_dark_;
  if (is_dark_) return;
  ++num_decisions_;
  demand_ = traffic_.iteration_bytes();
  last_quantised_.clear();
  const bool is_whole = std::none_of(once_.begin(), once_.end(), [&](const auto& one) { return is_broken(one); });
  apply(is_whole ? once_ : planner_->plan(demand_, setting_), plane);
  serve_starved(plane);
}

// The job begins an iteration anew: what it has sent of it counts for nothing.
void CircuitSwitching::cut(int32_t job, ControlPlane& plane) {
  traffic_.forget(plane.accelerators_of(job));
  const auto follower = followers_.find(job);
  if (follower != followers_.end() && follower->second.is_known()) {
    follower->second.begin_anew(num_active());
    at(plane.now(), plane, [this](ControlPlane& p) { decide(phase_demand(), p); });
  }
  if (trial_ != nullptr) trial_->cut();
}

// Of the phases that all jobs are in.
CircuitSwitching::Demand CircuitSwitching::phase_demand() const {
  Demand demand(links_.size(), 0);
  for (const auto& [job, follower] : followers_) {
    if (!follower.is_known()) continue;
    const Phase& phase = follower.current();
    for (size_t i = 0; i < phase.pairs.size(); ++i) demand[phase.pairs[i]] += phase.num_bytes[i];
  }
  return demand;
}

// A periodic decision is carried out where that pays, as far as the last setting found lets it expect.
void CircuitSwitching::consider(const Demand& demand, ControlPlane& plane) {
  const bool has_any = std::any_of(demand.begin(), demand.end(), [](double bytes) { return bytes > 0; });
  if (!has_any || is_dark_ || pays(reached_ * planner_->most_ratio(demand), demand)) return decide(demand, plane, true);
  ++num_decisions_;
  ++num_reused_;
  demand_ = demand;
  serve_starved(plane);
}

// Without any demand circuits stay as they are.
void CircuitSwitching::decide(const Demand& demand, ControlPlane& plane, bool has_to_pay) {
  if (std::none_of(demand.begin(), demand.end(), [](double bytes) { return bytes > 0; })) return;
  if (is_dark_) {
    waiting_ = demand;
    has_waiting_ = true;
    return;
  }
  ++num_decisions_;
  demand_ = demand;
  const circuits::Setting& wanted = setting_for(demand);
  const std::vector<int32_t> counts = circuits::count_circuits(wanted, links_.size());
  const double ratio = circuits::slowest_ratio(demand, counts);
  reached_ = ratio / planner_->most_ratio(demand);
  if (!has_to_pay || pays(ratio, demand)) apply(wanted, plane);
  serve_starved(plane);
}

// A setting stays for a period at least: it is to carry more for the slowest pair in what of that is not dark. A pair
// that wants circuits, and has none, is worth any.
bool CircuitSwitching::pays(double ratio, const Demand& demand) const {
  if (options_.period == SimTime::zero()) return true;
  const double now = circuits::slowest_ratio(demand, count_);
  const double period_s = options_.period.seconds();
  return now == 0 || ratio * (period_s - options_.delay.seconds()) > now * period_s;
}

void CircuitSwitching::strike(const circuits::OpticalPart& part, int32_t change, ControlPlane& plane) {
  count_time(plane.now());
  for (const int32_t place : planner_->paths().places_of(part)) num_failures_[place] += change;
  count_lit();
  set_capacities(plane);
}

// Around parts known to have failed: those failed a reroute delay ago, and not repaired since.
void CircuitSwitching::plan_around(ControlPlane& plane) {
  std::vector<circuits::OpticalPart> lost;
  for (const OpticalFailure& one : options_.failures) {
    const bool is_repaired = one.repair <= plane.now();
    if (one.fail + options_.reroute <= plane.now() && !is_repaired) lost.push_back(one.part);
  }
  planner_->set_lost(lost);
  known_settings_.clear();
  last_quantised_.clear();
  const Demand phase = phase_demand();
  const bool has_phase = std::any_of(phase.begin(), phase.end(), [](double bytes) { return bytes > 0; });
  decide(has_phase ? phase : Demand(demand_), plane);
}

bool CircuitSwitching::is_broken(const circuits::Circuit& one) const {
  if (num_failures_.empty()) return false;
  const auto places = planner_->paths().places_of(pairs_.src[one.pair], pairs_.dst[one.pair], one.channel);
  return std::any_of(places.begin(), places.end(), [this](int32_t place) { return num_failures_[place] > 0; });
}

// What changes is dark, and among what is set; only where parts fail every circuit is looked at.
void CircuitSwitching::count_lit() {
  lit_ = count_;
  num_dark_now_ = num_broken_now_ = 0;
  if (is_dark_) {
    for (const circuits::ChannelBlock& block : changing_.blocks())
      lit_[block.pair] -= circuits::num_set(block.channels);
    num_dark_now_ = changing_.size();
  }
  if (num_failures_.empty()) return;
  for (const circuits::Circuit one : setting_) {
    if (!is_broken(one)) continue;
    ++num_broken_now_;
    if (is_dark_ && changing_.has(one)) continue;
    --lit_[one.pair];
    ++num_dark_now_;
  }
}

const circuits::Setting& CircuitSwitching::setting_for(const Demand& demand) {
  std::vector<int16_t> steps = quantise(demand);
  if (steps == last_quantised_) {
    ++num_reused_;
    return setting_;
  }
  last_quantised_ = steps;
  const auto found = known_settings_.find(steps);
  if (found != known_settings_.end()) {
    ++num_reused_;
    return found->second;
  }
  if (known_settings_.size() >= kMaxKnown) known_settings_.clear();
  std::vector<double> share(static_cast<size_t>(kOctaves * kStepsPerOctave) + 1);  // so many steps below the largest
  for (size_t below = 0; below < share.size(); ++below)
    share[below] = std::exp2(-static_cast<double>(below) / kStepsPerOctave);
  Demand even(demand.size(), 0);
  for (size_t p = 0; p < demand.size(); ++p) {
    if (steps[p] != kNone) even[p] = share[static_cast<size_t>(-steps[p])];
  }
  return known_settings_.emplace(std::move(steps), planner_->plan(even, setting_)).first->second;
}

// Nothing changes where what is dark would not be lit again before the end of simulated time.
bool CircuitSwitching::apply(const circuits::Setting& given, ControlPlane& plane) {
  if (options_.delay.ps() > SimTime::never().ps() - plane.now().ps()) return false;
  auto [added, wanted] = planner_->change(given, setting_);
  if (added.empty() && wanted.size() == setting_.size()) return false;
  count_time(plane.now());
  setting_ = std::move(wanted);
  count_ = circuits::count_circuits(setting_, links_.size());
  set_relays(plane);
  num_served_ = num_starved_ = 0;
  for (int32_t p = 0; p < pairs_.size(); ++p) (has_way(p) ? num_served_ : num_starved_) += traffic_.num_active(p);
  num_changed_ += added.size();
  begin_ps_.push_back(plane.now().ps());
  changed_.push_back(added.size());
  record(added);
  if (options_.delay == SimTime::zero() || added.empty()) {
    light(plane);
  } else {
    is_dark_ = true;
    changing_ = std::move(added);
    count_lit();
    set_capacities(plane);
    at(plane.now() + options_.delay, plane, [this](ControlPlane& p) { light(p); });
  }
  return true;
}

void CircuitSwitching::light(ControlPlane& plane) {
  count_time(plane.now());
  is_dark_ = false;
  end_ps_.push_back(plane.now().ps());
  count_lit();
  set_capacities(plane);
  if (is_to_be_restored_) {
    restore(plane);
  } else if (std::exchange(has_waiting_, false)) {
    decide(waiting_, plane);
  }
  serve_starved(plane);
}

void CircuitSwitching::set_capacities(ControlPlane& plane) {
  for (size_t p = 0; p < links_.size(); ++p) {
    if (capacity_of_[p] == lit_[p]) continue;
    capacity_of_[p] = lit_[p];
    plane.set_capacity(links_[p], lit_[p] * options_.circuit_bytes_per_s);
  }
  set_ways(plane);
}

// Messages between two servers take their circuits while one is lit, and else the network.
void CircuitSwitching::set_ways(ControlPlane& plane) {
  if (!servers_.has_network()) return;
  const auto num_accelerators = static_cast<int32_t>(servers_.up.size());
  for (int32_t p = 0; p < pairs_.size(); ++p) {
    const uint8_t on_network = lit_[p] == 0;
    if (on_network == is_on_network_[p]) continue;
    is_on_network_[p] = on_network;
    const int32_t from = pairs_.src[p] * servers_.size, to = pairs_.dst[p] * servers_.size;
    for (int32_t a = from; a < std::min(from + servers_.size, num_accelerators); ++a) {
      for (int32_t b = to; b < std::min(to + servers_.size, num_accelerators); ++b) {
        std::vector<routing::LinkShare> hops = {{servers_.up[a], 1.0}};
        if (on_network) {
          hops.push_back({servers_.network_up[pairs_.src[p]], 1.0});
          hops.push_back({servers_.network_down[pairs_.dst[p]], 1.0});
        } else {
          hops.push_back({links_[p], 1.0});
        }
        hops.push_back({servers_.down[b], 1.0});
        plane.set_route(a, b, hops, on_network ? servers_.network_latency : servers_.circuit_latency);
      }
    }
  }
}

// Messages of a pair without a circuit take the fewest circuits of others, those that are about to be lit included.
// Where no chain of them leads there they wait for a circuit.
void CircuitSwitching::set_relays(ControlPlane& plane) {
  if (!options_.enable_relay) return;
  circuits::RelayPaths paths(pairs_, count_);
  for (int32_t p = 0; p < pairs_.size(); ++p) {
    circuits::Relay relay;
    if (count_[p] == 0) relay = paths.find(p);
    if (relay.hops == relays_[p]) continue;
    relays_[p] = relay.hops;
    std::vector<routing::LinkShare> hops;
    for (const circuits::RelayHop& hop : relay.hops) hops.push_back({links_[hop.pair], hop.share});
    if (hops.empty()) hops.push_back({links_[p], 1.0});
    plane.set_route(pairs_.src[p], pairs_.dst[p], hops, latency_of(p, relay));
  }
}

// Of the longest chain, where there are several; of the pair's own circuits without any.
SimTime CircuitSwitching::latency_of(int32_t pair, const circuits::Relay& relay) const {
  if (latency_.empty()) return options_.circuit_latency.times(std::max(1, relay.num_circuits));
  if (relay.hops.empty()) return latency_[pair];
  std::map<int32_t, SimTime> reached;
  for (const circuits::RelayHop& hop : relay.hops) {  // from the source on, so that what leads there has been seen
    const SimTime there = reached[pairs_.src[hop.pair]] + latency_[hop.pair];
    reached[pairs_.dst[hop.pair]] = std::max(reached[pairs_.dst[hop.pair]], there);
  }
  return reached[pairs_.dst[pair]];
}

void CircuitSwitching::count_time(SimTime now) {
  const double seconds = (now - counted_until_).seconds();
  counted_until_ = now;
  dark_s_ += seconds * static_cast<double>(num_dark_now_);
  failed_s_ += seconds * static_cast<double>(num_broken_now_);
  lit_s_ += seconds * static_cast<double>(setting_.size() - num_dark_now_);
}

void CircuitSwitching::record(const circuits::Setting& changed) {
  if (!options_.is_recorded) return;
  const auto number = static_cast<int64_t>(begin_ps_.size());
  for (const circuits::Circuit one : setting_) {
    recorded_.push_back(number);
    recorded_pair_.push_back(one.pair);
    recorded_channel_.push_back(one.channel);
    recorded_is_changed_.push_back(changed.has(one));
  }
}

workload::Report CircuitSwitching::report(SimTime now) const {
  // Not what comes after the last message.
  const double since = std::max(0.0, (std::min(now, last_message_) - counted_until_).seconds());
  const double dark_s = dark_s_ + since * static_cast<double>(num_dark_now_);
  const double lit_s = lit_s_ + since * (static_cast<double>(setting_.size()) - static_cast<double>(num_dark_now_));
  const double failed_s = failed_s_ + since * static_cast<double>(num_broken_now_);
  std::vector<int64_t> ends = end_ps_;
  if (ends.size() < begin_ps_.size()) ends.push_back(now.ps());
  int64_t num_phases = 0;
  for (const auto& [job, follower] : followers_) num_phases += static_cast<int64_t>(follower.num_phases());
  workload::Report said = {
      {"num_decisions", std::vector<int64_t>{num_decisions_}},
      {"num_reused", std::vector<int64_t>{num_reused_}},
      {"num_changed", std::vector<int64_t>{num_changed_}},
      {"num_phases", std::vector<int64_t>{num_phases}},
      {"lit_circuit_s", std::vector<double>{lit_s}},
      {"dark_circuit_s", std::vector<double>{dark_s}},
      {"failed_circuit_s", std::vector<double>{failed_s}},
      {"begin_ps", begin_ps_},
      {"end_ps", ends},
      {"changed", changed_},
  };
  if (options_.is_clocked) said["decisions_cpu_s"] = std::vector<double>{clocked_s_};
  if (options_.is_recorded) {
    said["setting"] = recorded_;
    said["setting_pair"] = recorded_pair_;
    said["setting_channel"] = recorded_channel_;
    said["setting_is_changed"] = recorded_is_changed_;
  }
  return said;
}

}  // namespace rostam::control
