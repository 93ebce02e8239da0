// RingPatterns: what one wavelength may serve on both fibres of a small ring, and the most that it may be worth.
// Invariant of a pattern: what it serves on a fibre overlaps nowhere, and no accelerator drives, or receives, on both
// fibres; so a pair is in it once at most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "circuits/demand.h"
#include "circuits/ring_paths.h"

namespace rostam::circuits {

// Of one wavelength: numbers of ways on each fibre.
struct RingPattern {
  std::vector<int32_t> ways[kNumFibres];
};

class RingPatterns {
 public:
  struct Way {
    int32_t pair = 0;
    int32_t start = 0;  // counted from the cut; end > N where the cut severs it
    int32_t end = 0;
  };

  struct Effort {
    int32_t num_begins = 1;  // what the wavelength has, then each fibre alone, then worths drawn around theirs
    int32_t max_turns = 2;   // of each fibre, for one begin
  };

  // ways: those of each pair within reach. seed: of what is drawn.
  RingPatterns(const Demand& demand, const Ring& ring, const std::vector<std::vector<RingPath>>& ways, uint64_t seed);

  // The pattern worth most that is found, `before` unless another is worth more. weight: of each pair. The choice is
  // exact on one fibre while the other stays (a longest path over the cut ring), and the fibres take turns.
  RingPattern best(const RingPattern& before, const std::vector<double>& weight, const Effort& effort);

  // Adds the ways of further pairs wherever they are free, in this order; calls on_added(pair).
  template <typename Function>
  void fill(RingPattern& pattern, const std::vector<int32_t>& order, Function&& on_added);

  // Calls visit(pair) for each pair that a pattern serves.
  template <typename Function>
  void visit(const RingPattern& pattern, Function&& visit) const {
    for (int32_t fibre = 0; fibre < kNumFibres; ++fibre) {
      for (const int32_t way : pattern.ways[fibre]) visit(ways_[fibre][static_cast<size_t>(way)].pair);
    }
  }

  // The same pattern served by accelerators so far ahead. REQUIRES: all pairs that it then serves are demanded, and all
  // ways of theirs that it then takes are open.
  RingPattern turned(const RingPattern& pattern, int32_t by) const;

  // Whether turning all ways so far ahead gives all ways.
  bool can_turn(int32_t by) const;

  // The pair so far ahead, -1 where that is not demanded.
  int32_t turned_pair(int32_t pair, int32_t by) const;

  const Way& way(int32_t fibre, int32_t number) const { return ways_[fibre][static_cast<size_t>(number)]; }
  int32_t way_of(int32_t fibre, int32_t pair) const { return way_of_[fibre][static_cast<size_t>(pair)]; }  // -1: none

  double draw();                                      // from [0, 1)
  int64_t num_looked() const { return num_looked_; }  // edges so far: what choices have cost

 private:
  double worth(const RingPattern& pattern) const;
  void choose(int32_t fibre, std::vector<double>& value, std::vector<int32_t>& chosen);
  double longest(int32_t fibre, const std::vector<double>& value, int32_t first, int32_t last);
  void settle(RingPattern& pattern, int32_t fibre, bool may_oust);
  void mark_ends(const std::vector<int32_t>& ways, int32_t fibre);
  bool take_if_free(int32_t fibre, const Way& way);

  const Demand& demand_;
  int32_t n_;
  uint64_t state_;
  std::vector<Way> ways_[kNumFibres];        // those that the cut leaves whole by (start, end), then the severed
  std::vector<int32_t> way_of_[kNumFibres];  // of each pair; -1 for none
  size_t num_whole_[kNumFibres] = {0, 0};
  int32_t origin_[kNumFibres] = {0, 0};
  std::vector<int32_t> pair_of_;  // src x N + dst; -1 for none
  int64_t num_looked_ = 0;
  // Of a choice.
  const std::vector<double>* weight_ = nullptr;
  std::vector<int32_t> driver_, receiver_;  // the pair that each accelerator's wavelength is of, on the other fibre
  std::vector<double> reached_;
  std::vector<int32_t> via_;
  std::vector<double> value_;
  std::vector<int32_t> found_;
  std::vector<uint8_t> is_used_[kNumFibres], drives_, receives_;  // while a pattern is filled
};

template <typename Function>
void RingPatterns::fill(RingPattern& pattern, const std::vector<int32_t>& order, Function&& on_added) {
  drives_.assign(static_cast<size_t>(n_), 0);
  receives_ = is_used_[0] = is_used_[1] = drives_;
  for (int32_t fibre = 0; fibre < kNumFibres; ++fibre) {
    for (const int32_t number : pattern.ways[fibre]) take_if_free(fibre, way(fibre, number));
  }
  for (const int32_t pair : order) {
    for (int32_t fibre = 0; fibre < kNumFibres; ++fibre) {
      const int32_t number = way_of(fibre, pair);
      if (number < 0 || !take_if_free(fibre, way(fibre, number))) continue;
      pattern.ways[fibre].push_back(number);
      on_added(pair);
    }
  }
}

}  // namespace rostam::circuits
