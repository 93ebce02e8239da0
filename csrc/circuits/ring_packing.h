// RingPacking: wavelengths of pairs that may go either way round a small ring, both at once included.
// Invariant: what a wavelength serves on a fibre overlaps nowhere, and no accelerator drives it, or receives it, on
// both fibres; so a pair gets a wavelength once at most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "circuits/demand.h"
#include "circuits/ring_paths.h"

namespace rostam::circuits {

struct PackingEffort {
  int64_t num_steps = 0;   // edges that are looked at
  int32_t num_begins = 1;  // for one wavelength: what it has, then each fibre alone, then worths drawn around theirs
  int32_t max_turns = 2;   // of each fibre, for one wavelength and begin
};

// Begins with a legal assignment, and takes wavelengths one after another: the pairs that one serves are chosen anew
// for what the others give. A pair is worth the more the less it has of its bytes, exp(-eta count / bytes), so that the
// sum over all pairs is a smooth minimum, which falls with every choice; eta grows with the rounds. The choice is exact
// on one fibre while the other stays (a longest path over the cut ring), and the fibres take turns.
// Source: own, after packing by exponential weights (Plotkin, Shmoys, Tardos 1995) over the paper's unit flows (SiP-ML
// A.2); tests/circuits/test_ring_both_ways.py.
class RingPacking {
 public:
  // ways: those of each pair within reach. seed: orders pairs that are equally slow.
  RingPacking(const Demand& demand, const Ring& ring, const std::vector<std::vector<RingPath>>& ways, uint64_t seed);

  // Returns circuits whose smallest count / bytes is at least that of `begin`, ascending by pair and wavelength, and
  // after which no wavelength is free for any pair.
  std::vector<RingCircuit> improve(const std::vector<RingCircuit>& begin, const PackingEffort& effort);

 private:
  struct Way {
    int32_t pair = 0;
    int32_t start = 0;  // counted from the cut; end > N where the cut severs it
    int32_t end = 0;
  };
  // Of one wavelength: numbers of ways on each fibre.
  struct Pattern {
    std::vector<int32_t> ways[kNumFibres];
  };

  void weigh(double eta);
  double worth(const Pattern& pattern) const;
  void count(const Pattern& pattern, int32_t by);
  double slowest() const;
  void choose(int32_t fibre, std::vector<double>& value, std::vector<int32_t>& chosen);
  double longest(int32_t fibre, const std::vector<double>& value, int32_t first, int32_t last, bool is_kept);
  void settle(Pattern& pattern, int32_t fibre, bool may_oust);
  Pattern best_pattern(const Pattern& before);
  double draw();
  void fill(Pattern& pattern);
  void mark_ends(const std::vector<int32_t>& ways, int32_t fibre);

  const Demand& demand_;
  int32_t n_;
  int32_t num_wavelengths_;
  uint64_t state_;
  std::vector<Way> ways_[kNumFibres];        // those that the cut leaves whole by (start, end), then the severed
  std::vector<int32_t> way_of_[kNumFibres];  // of each pair; -1 for none
  size_t num_whole_[kNumFibres] = {0, 0};
  int32_t origin_[kNumFibres] = {0, 0};
  std::vector<double> tie_;
  std::vector<int32_t> counts_;
  double scale_ = 1;  // the ratio count / bytes that is aimed at
  std::vector<double> weight_;
  std::vector<int32_t> driver_, receiver_;  // the pair that each accelerator's wavelength is of, on the other fibre
  std::vector<double> reached_;
  std::vector<int32_t> via_;
  std::vector<double> value_;
  std::vector<int32_t> found_;
  PackingEffort effort_;
  int64_t num_looked_ = 0;
};

}  // namespace rostam::circuits
