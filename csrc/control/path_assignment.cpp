// path_assignment: a central controller that gives large messages single paths. Whenever a job begins or ends to send
// in an iteration, and when parts fail or are repaired, an assigner chooses paths for all that is sent; it takes
// latency_ps, and meanwhile, as for messages below least_bytes, the routing's own paths hold. ahead = 1: a pair keeps
// its path from iteration to iteration until another is chosen; what is chosen for traffic that there was before, and
// what follows a first failure, takes no time. A commodity is a pair of accelerators of a job, from its first large
// message in an iteration to the iteration's end; of flows without a job, as long as one is under way. Source: Cohen et
// al., Routing for Large ML Models; when it runs: section "When it runs" and the authors' code, which assigns all anew
// whenever a job starts or ends an iteration.
#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "assignment/registry.h"
#include "assignment/shares.h"
#include "control/registry.h"
#include "sim/random.h"

namespace rostam::control {

namespace {

// Own: hosts know a message's length and ask for elephants alone; the paper gives no size.
constexpr int64_t kLeastBytes = 1'000'000;
constexpr char kPlanned[] = "planned";
// "about 10 ms for 100 to 1,500 commodities", Cohen et al., evaluation.
constexpr int64_t kLatencyPs = 10'000'000'000;

struct Settings {
  int64_t least_bytes = kLeastBytes;
  SimTime latency = SimTime::from_ps(kLatencyPs);
  bool plans_ahead = false;
  std::vector<assignment::PlannedPath> planned;
};

class PathAssignment : public Controller {
 public:
  PathAssignment(std::unique_ptr<assignment::Assigner> assigner, Settings settings)
      : assigner_(std::move(assigner)), settings_(settings) {}

  // Throws: ConfigError for planned paths that do not exist.
  void begin(ControlPlane& plane) override {
    for (const assignment::PlannedPath& one : settings_.planned) {
      const auto count = static_cast<int32_t>(plane.paths(one.src, one.dst).size());
      if (one.path >= 0 && one.path < count) continue;
      ROSTAM_THROW(ConfigError, "controller path_assignment: planned holds path " << one.path << " of accelerator "
                                                                                  << one.src << " to " << one.dst
                                                                                  << "; they are 0 to " << count - 1);
    }
  }

  void on(const Event& event, ControlPlane& plane) override {
    switch (event.kind) {
      case kFlowStart:
        return start(event, plane);
      case kFlowEnd:
        return event.job < 0 ? end_flow(event, plane) : void();
      case kIterationEnd:
        return end_job(event.job, plane);
      default:
        if (event.job >= 0) end_job(event.job, plane);
        if (settings_.plans_ahead && event.kind == kFailure && event.failure == 0) {
          has_failed_ = true;
          look_up(plane);
        }
        return ask_anew(plane);
    }
  }

  void wake(ControlPlane& plane) override {
    if (plane.now() == looked_up_ && std::exchange(looks_up_, false)) return recall(plane);
    if (plane.now() != due_) return;
    due_ = SimTime::never();
    apply(traffic(plane, settings_.latency), plane);
    if (std::exchange(is_asked_again_, false)) ask(plane);
  }

  uint32_t subscriptions() const override { return kFlowStart | kFlowEnd | kIterationEnd | kFailure | kRepair; }
  folding::Footprint footprint() const override {
    folding::Footprint all;
    all.chooses_paths = true;
    return all;
  }

  // Of each decision: when, for how many commodities, how many of them took another path, and the most paths that it
  // puts on a link.
  workload::Report report(SimTime /*now*/) const override {
    return {{"decision_ps", decision_ps_},
            {"num_commodities", num_commodities_},
            {"num_moved", num_moved_},
            {"largest_load", largest_load_},
            {"num_unplanned", std::vector<int64_t>{assigner_->num_unplanned()}}};
  }

 private:
  using Key = std::tuple<int32_t, int32_t, int32_t>;  // job, source, destination
  struct State {
    SimTime since;
    int64_t order = 0;  // of its first message
    int32_t num_flows = 0;
    int32_t place = kNoPlace;  // of its path among all of the pair, if it is not the routing's own
    bool is_there = false;     // in this iteration
  };
  using Traffic = std::vector<Key>;
  static constexpr int32_t kNoPlace = -1;

  void start(const Event& event, ControlPlane& plane) {
    if (event.bytes < settings_.least_bytes) return;
    const auto [one, is_new] = commodities_.try_emplace({event.job, event.src, event.dst});
    State& state = one->second;
    ++state.num_flows;
    if (is_new) state.order = num_started_++;
    if (std::exchange(state.is_there, true)) return;
    state.since = plane.now();
    look_up(plane);
    ask(plane);
  }

  void end_flow(const Event& event, ControlPlane& plane) {
    if (event.bytes < settings_.least_bytes) return;
    const auto one = commodities_.find({event.job, event.src, event.dst});
    if (one == commodities_.end() || --one->second.num_flows > 0) return;
    end(one->first, one->second, plane);
    look_up(plane);
    ask(plane);
  }

  void end_job(int32_t job, ControlPlane& plane) {
    bool is_any = false, is_other = false;
    for (auto& [key, state] : commodities_) {
      if (!state.is_there) continue;
      const bool ends = std::get<0>(key) == job;
      if (ends) end(key, state, plane);
      is_any = is_any || ends;
      is_other = is_other || !ends;
    }
    if (!is_any || !is_other) return;
    look_up(plane);
    ask(plane);
  }

  // Planning ahead, what comes again in the next iteration has its path from the first message on.
  void end(const Key& key, State& state, ControlPlane& plane) const {
    state.is_there = false;
    if (settings_.plans_ahead || std::exchange(state.place, kNoPlace) == kNoPlace) return;
    plane.unset_path(std::get<1>(key), std::get<2>(key));
  }

  // A decision takes its time; what is asked for meanwhile waits for the next one.
  void ask(ControlPlane& plane) {
    if (due_ < SimTime::never()) {
      is_asked_again_ = is_asked_again_ || plane.now() + settings_.latency > due_;
      return;
    }
    due_ = plane.now() + settings_.latency;
    plane.wake_at(due_);
  }

  // What has failed, or works again, begins a decision anew.
  void ask_anew(ControlPlane& plane) {
    due_ = SimTime::never();
    is_asked_again_ = false;
    ask(plane);
  }

  // Once for an instant, when what happens in it is through.
  void look_up(ControlPlane& plane) {
    if (!settings_.plans_ahead || looked_up_ == plane.now()) return;
    looked_up_ = plane.now();
    looks_up_ = true;
    plane.wake_at(looked_up_);
  }

  void recall(ControlPlane& plane) {
    const Traffic all = traffic(plane, SimTime::zero());
    if (std::exchange(has_failed_, false) || known_.count(digest(all)) > 0) apply(all, plane);
  }

  // Commodities that have been there for a while, or whose path is known, in the order in which they began to send.
  Traffic traffic(const ControlPlane& plane, SimTime age) const {
    std::vector<std::pair<int64_t, Key>> found;
    for (const auto& [key, state] : commodities_) {
      const bool is_known = state.since + age <= plane.now() || state.place != kNoPlace;
      if (state.is_there && is_known) found.emplace_back(state.order, key);
    }
    std::sort(found.begin(), found.end());
    Traffic ordered;
    for (const auto& [order, key] : found) ordered.push_back(key);
    return ordered;
  }

  void apply(const Traffic& traffic, ControlPlane& plane) {
    std::vector<assignment::Commodity> commodities;
    std::vector<double> capacities;
    for (const Key& key : traffic) {
      assignment::Commodity one = commodity_of(key, plane, capacities);
      if (!one.paths.empty()) {
        commodities.push_back(std::move(one));
      } else if (std::exchange(commodities_.at(key).place, kNoPlace) != kNoPlace) {
        plane.unset_path(one.src, one.dst);  // what the routing has after the failure, if it has a way
      }
    }
    if (commodities.empty()) return;
    const assignment::PathProblem problem(std::move(commodities), capacities);
    const assignment::Assignment chosen = assigner_->assign(problem);
    if (settings_.plans_ahead) known_.insert(digest(traffic));
    int64_t num_moved = 0;
    for (int32_t number = 0; number < problem.size(); ++number) {
      const assignment::Commodity& one = problem.commodity(number);
      if (plane.paths(one.src, one.dst).size() < 2) continue;  // it has its path
      const auto k = static_cast<size_t>(chosen[static_cast<size_t>(number)]);
      int32_t& place = commodities_.at({one.job, one.src, one.dst}).place;
      if (std::exchange(place, one.places[k]) == one.places[k]) continue;
      ++num_moved;
      plane.set_path(one.src, one.dst, *one.paths[k], settings_.least_bytes);
    }
    decision_ps_.push_back(plane.now().ps());
    num_commodities_.push_back(problem.size());
    num_moved_.push_back(num_moved);
    assignment::LinkCounts counts(problem);
    double largest = 0;
    for (int32_t n = 0; n < problem.size(); ++n) counts.add(n, chosen[static_cast<size_t>(n)]);
    for (int32_t n = 0; n < problem.size(); ++n) {
      largest = std::max(largest, counts.busiest(n, chosen[static_cast<size_t>(n)]));
    }
    largest_load_.push_back(largest);
  }

  static uint64_t digest(const Traffic& traffic) {
    uint64_t sum = 0;
    for (const auto& [job, src, dst] : traffic) {
      sum = mix(mix(mix(sum + static_cast<uint64_t>(job)) + static_cast<uint64_t>(src)) + static_cast<uint64_t>(dst));
    }
    return sum;
  }

  // With the paths on which nothing has failed; notes the bandwidths of their links.
  static assignment::Commodity commodity_of(const Key& key, ControlPlane& plane, std::vector<double>& capacities) {
    assignment::Commodity one;
    std::tie(one.job, one.src, one.dst) = key;
    const std::vector<routing::Path>& paths = plane.paths(one.src, one.dst);
    for (size_t place = 0; place < paths.size(); ++place) {
      bool works = true;
      for (const int32_t link : paths[place].links) {
        if (link >= static_cast<int32_t>(capacities.size())) capacities.resize(static_cast<size_t>(link) + 1, 0);
        capacities[static_cast<size_t>(link)] = plane.capacity(link);
        works = works && capacities[static_cast<size_t>(link)] > 0;
      }
      if (!works) continue;
      one.paths.push_back(&paths[place]);
      one.places.push_back(static_cast<int32_t>(place));
    }
    return one;
  }

  std::unique_ptr<assignment::Assigner> assigner_;
  Settings settings_;
  std::map<Key, State> commodities_;
  int64_t num_started_ = 0;
  SimTime due_ = SimTime::never();        // of the decision that is being made
  bool is_asked_again_ = false;           // since it was begun
  SimTime looked_up_ = SimTime::never();  // the last instant at which known traffic was sought
  bool looks_up_ = false;                 // then
  std::unordered_set<uint64_t> known_;    // digests of traffic that was assigned before
  bool has_failed_ = false;               // for the first time: planned ahead
  std::vector<int64_t> decision_ps_, num_commodities_, num_moved_;
  std::vector<double> largest_load_;
};

std::vector<assignment::PlannedPath> planned_of(const ControllerParams& params) {
  if (!params.has("planned")) return {};
  const std::vector<int64_t> flat = params.integers("planned");
  if (flat.size() % 4 != 0) {
    ROSTAM_THROW(ConfigError, "controller path_assignment: planned has " << flat.size()
                                                                         << " numbers; it takes four for each path: "
                                                                            "jobs (a bit each), src, dst, path");
  }
  std::vector<assignment::PlannedPath> planned;
  for (size_t i = 0; i < flat.size(); i += 4) {
    for (size_t k = i; k < i + 4; ++k) {
      const int64_t most = k == i ? INT64_MAX : INT32_MAX;
      if (flat[k] >= (k == i) && flat[k] <= most) continue;
      ROSTAM_THROW(ConfigError, "controller path_assignment: planned holds "
                                    << flat[k] << " at " << k
                                    << "; its fours are jobs (a bit each, at "
                                       "least one), src, dst, path, each >= 0");
    }
    planned.push_back({static_cast<uint64_t>(flat[i]), static_cast<int32_t>(flat[i + 1]),
                       static_cast<int32_t>(flat[i + 2]), static_cast<int32_t>(flat[i + 3])});
  }
  return planned;
}

}  // namespace

std::unique_ptr<Controller> make_path_assignment_controller(const ControllerParams& params) {
  params.check_keys({"assigner", "least_bytes", "latency_ps", "ahead", "seed", "planned"});
  const auto number = [&params](const char* key, int64_t otherwise) {
    const int64_t value = params.has(key) ? params.integer(key) : otherwise;
    if (value < 0) ROSTAM_THROW(ConfigError, "controller path_assignment: " << key << " is " << value << " < 0");
    return value;
  };
  Settings settings;
  settings.least_bytes = number("least_bytes", kLeastBytes);
  settings.latency = SimTime::from_ps(number("latency_ps", kLatencyPs));
  const int64_t ahead = number("ahead", 0);
  if (ahead > 1) ROSTAM_THROW(ConfigError, "controller path_assignment: ahead is " << ahead << "; it must be 0 or 1");
  settings.plans_ahead = ahead == 1;
  settings.planned = planned_of(params);
  const std::string name = params.has("assigner") ? params.text("assigner") : "greedy_by_sets";
  if (settings.planned.empty() == (name == kPlanned)) {
    ROSTAM_THROW(ConfigError, "controller path_assignment: assigner is '"
                                  << name << "', and planned is " << (settings.planned.empty() ? "missing" : "given")
                                  << "; planned paths and assigner=planned need each other");
  }
  const assignment::AssignerOptions options{static_cast<uint64_t>(number("seed", 0)), settings.planned};
  return std::make_unique<PathAssignment>(assignment::make_assigner(name, options), settings);
}

}  // namespace rostam::control
