// PlannerAround: circuits for one demand after another that keep clear of failed parts.
// Example: planner.set_lost({{OpticalKind::kSwitch, 1}}); planner.plan(num_bytes, held) leaves switch 1 alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "circuits/light_paths.h"
#include "circuits/planner.h"

namespace rostam::circuits {

// What circuits of a pair and of the opposite one have in common: nothing, their number, or the switch of each too.
enum class Mirror : uint8_t { kNone, kCounts, kChannels };

// Model: while nothing is lost the planner's own answer. Whole switches and segments are left out of what it plans
// with. Of its answer circuits through other lost parts are given up; then the slowest pair takes the first channel
// that is free and works, again and again, and a pair that is left with none takes one from pairs that have several.
// So what it plans around ports, wavelengths and micro-rings is a heuristic; a demanded pair that no working channel
// serves gets no circuit. Mirrored circuits are given up, and found, in pairs: by both directions on one channel where
// that is asked, or where they take circuits from others. Where that leaves a pair without circuits or relays the ring
// round all accelerators goes first, as far as it works, if that reaches all of them.
class PlannerAround : public CircuitPlanner {
 public:
  // A planner of these channels only, and of a ring with these segments cut in addition.
  using Make = std::function<std::unique_ptr<CircuitPlanner>(const std::vector<int32_t>& channels,
                                                             const std::vector<int32_t>& cut)>;

  // can_relay: as of the planners that are made. REQUIRES: mirrored, `pairs` holds the opposite of every pair, and a
  // part is lost in both directions.
  PlannerAround(PairList pairs, std::unique_ptr<LightPaths> paths, Make make, Mirror mirror = Mirror::kNone,
                bool can_relay = false);

  const LightPaths& paths() const { return *paths_; }
  // Throws: ConfigError for a part that the fabric does not have.
  void set_lost(const std::vector<OpticalPart>& parts);
  Setting plan(const std::vector<double>& num_bytes, const Setting& held) const override;
  double most_ratio(const std::vector<double>& num_bytes) const override { return inner_->most_ratio(num_bytes); }
  // What becomes of the circuits held by a setting: those that it adds, and the setting with those held that it leaves
  // alone: that work, and whose places nothing of it needs. Mirrored ones stay by as many of both directions, or by
  // both directions on one channel.
  struct Change {
    Setting added, now;
  };
  Change change(const Setting& setting, const Setting& held) const;

 private:
  std::vector<int32_t> places_of(const Circuit& one) const;  // empty if it does not work
  void complete(const std::vector<double>& num_bytes, Setting& setting) const;
  Setting working_ring() const;
  void keep_mirrored(Setting& idle) const;
  void fill(const std::vector<double>& num_bytes, Setting& setting) const;
  void balance(Setting& setting) const;
  void fill_both(const std::vector<double>& num_bytes, Setting& setting) const;

  PairList pairs_;
  std::unique_ptr<LightPaths> paths_;
  Make make_;
  Mirror mirror_;
  bool can_relay_;
  std::vector<int32_t> opposite_;  // of each pair; empty where nothing is mirrored
  std::unique_ptr<CircuitPlanner> inner_;
  std::vector<int32_t> channels_;   // of the inner planner's, in order
  std::vector<uint8_t> is_lost_;    // of every place; empty while nothing is
  std::vector<uint8_t> is_served_;  // of every pair: whether some channel works for it, or would not anyway
};

}  // namespace rostam::circuits
