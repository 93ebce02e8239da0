// RingPacking: wavelengths of pairs that may go either way round a small ring, both at once included.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "circuits/demand.h"
#include "circuits/ring_paths.h"
#include "circuits/ring_patterns.h"

namespace rostam::circuits {

struct PackingEffort {
  int64_t num_steps = 0;          // edges that rounds look at
  RingPatterns::Effort choice;    // of a wavelength's pattern
  int32_t num_moves = 0;          // without a higher smallest ratio; 0: rounds alone, over single wavelengths
  RingPatterns::Effort of_moves;  // of a wavelength's pattern
};

// Begins with a legal assignment, and takes wavelengths one after another: the pairs that one serves are chosen anew
// for what the others give.
// Rounds: a pair is worth the more the less it has of its bytes, exp(-eta count / bytes), so that the sum over all
// pairs is a smooth minimum, which falls with every choice; eta grows with the rounds.
// Moves: every pair needs whole wavelengths for the least ratio above the smallest; one that has fewer is worth its
// price, one that has them next to nothing, and prices of pairs that stay short rise, until none is.
// Where the demand is the same after a turn of the ring, wavelengths are first chosen together, each pattern for as
// many as there are turns: there are fewer to choose, what they serve is even by itself, and none is lost to rounding.
// Source: own, after packing by exponential weights (Plotkin, Shmoys, Tardos 1995) over the paper's unit flows (SiP-ML
// A.2), and set covering by rising prices (Yagiura, Kishida, Ibaraki 2006); tests/circuits/test_ring_both_ways.py.
class RingPacking {
 public:
  // ways: those of each pair within reach. seed: orders pairs that are equally slow.
  RingPacking(const Demand& demand, const Ring& ring, const std::vector<std::vector<RingPath>>& ways, uint64_t seed);

  // Returns circuits whose smallest count / bytes is at least that of `begin`, ascending by pair and wavelength, and
  // after which no wavelength is free for any pair.
  std::vector<RingCircuit> improve(const std::vector<RingCircuit>& begin, const PackingEffort& effort);

 private:
  using Patterns = std::vector<RingPattern>;

  bool take_turns(int32_t num_turns);
  void pack_by_turns(Patterns& best);
  Patterns split(const Patterns& patterns, int32_t num_turns, int32_t num_left) const;
  void pack(Patterns& patterns);
  void run_rounds(Patterns& patterns);
  void make_moves(Patterns& patterns);
  bool move_to(double target, Patterns& patterns);
  int64_t set_needs(double target);
  size_t cheapest(const Patterns& patterns);
  double next_ratio() const;
  void weigh(double eta);
  void count(const RingPattern& pattern, int32_t by);
  void count_all(const Patterns& patterns);
  double slowest() const;
  void fill(Patterns& patterns);

  const Demand& demand_;
  int32_t n_;
  int32_t num_wavelengths_;
  RingPatterns choice_;
  PackingEffort effort_;
  double bound_ = 0;  // of the smallest ratio: no pair has more than its accelerators can share out
  std::vector<double> tie_;
  // Pairs of one kind get alike: those that turns by N / num_turns_ map onto one another, each pattern being of as many
  // wavelengths. 1: each pair is a kind of its own.
  int32_t num_turns_ = 1;
  std::vector<int32_t> kind_of_;
  std::vector<double> bytes_;    // of a pair of each kind
  std::vector<int32_t> counts_;  // wavelengths of a pair of each kind
  double scale_ = 1;             // the ratio count / bytes that is aimed at
  std::vector<double> of_kind_;  // what one wavelength more is worth
  std::vector<double> weight_;   // of each pair
  std::vector<int32_t> need_;    // of a pair of each kind
  std::vector<double> price_;    // of one that is short
};

}  // namespace rostam::circuits
