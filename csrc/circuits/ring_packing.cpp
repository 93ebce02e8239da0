#include "circuits/ring_packing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "sim/interrupt.h"
#include "sim/random.h"

namespace rostam::circuits {

namespace {

// Rounds over all wavelengths, and eta of the first and the last, in wavelengths of the pair that is aimed at most.
constexpr int64_t kNumRounds = 24;
constexpr double kFirstEta = 4;
constexpr double kLastEtaPerWavelength = 4;
// Pairs that are equally slow differ by so much.
constexpr double kTie = 1e-3;
// Bytes of pairs that a turn maps onto one another may differ by so much: sums in another order.
constexpr double kSameBytes = 1e-12;
// Of moves. A target is at least so far above the smallest ratio; what draws may add to a price; how prices rise with
// every move; wavelengths that are compared for the next one.
constexpr double kLeastStep = 0.005;
constexpr double kNoise = 0.2;
constexpr double kRise = 0.1;
constexpr int32_t kNumCompared = 4;
constexpr double kNextToNothing = 1e-6;
constexpr double kRounding = 1e-9;

}  // namespace

RingPacking::RingPacking(const Demand& demand, const Ring& ring, const std::vector<std::vector<RingPath>>& ways,
                         uint64_t seed)
    : demand_(demand),
      n_(ring.num_accelerators),
      num_wavelengths_(ring.num_wavelengths),
      choice_(demand, ring, ways, seed) {
  std::vector<double> sent(static_cast<size_t>(n_), 0), received(sent);
  for (size_t i = 0; i < ways.size(); ++i) {
    tie_.push_back(1 + kTie * static_cast<double>(mix(mix(seed) + i) >> 11) * 0x1p-53);
    sent[demand_.src[i]] += demand_.num_bytes[i];
    received[demand_.dst[i]] += demand_.num_bytes[i];
  }
  bound_ = num_wavelengths_ /
           std::max(*std::max_element(sent.begin(), sent.end()), *std::max_element(received.begin(), received.end()));
  weight_.assign(ways.size(), 0);
  take_turns(1);
}

// Makes kinds of what so many turns map onto one another. False if the demand, or what is cut, is not the same then.
bool RingPacking::take_turns(int32_t num_turns) {
  const int32_t by = n_ / num_turns;
  const auto num_pairs = static_cast<int32_t>(weight_.size());
  if (num_turns > 1) {
    if (!choice_.can_turn(by)) return false;
    for (int32_t pair = 0; pair < num_pairs; ++pair) {
      const double own = demand_.num_bytes[pair], other = demand_.num_bytes[choice_.turned_pair(pair, by)];
      if (std::abs(own - other) > kSameBytes * own) return false;
    }
  }
  num_turns_ = num_turns;
  kind_of_.assign(static_cast<size_t>(num_pairs), -1);
  bytes_.clear();
  for (int32_t pair = 0; pair < num_pairs; ++pair) {
    if (kind_of_[pair] >= 0) continue;
    double most = 0;
    for (int32_t turn = 0, other = pair; turn < num_turns; ++turn) {
      kind_of_[other] = static_cast<int32_t>(bytes_.size());
      most = std::max(most, demand_.num_bytes[other]);
      if (num_turns > 1) other = choice_.turned_pair(other, by);
    }
    bytes_.push_back(most);
  }
  counts_.assign(bytes_.size(), 0);
  of_kind_.assign(bytes_.size(), 0);
  return true;
}

// What one wavelength more takes off the sum over pairs of exp(-eta count / (scale bytes)).
void RingPacking::weigh(double eta) {
  double most = -std::numeric_limits<double>::infinity();
  for (size_t k = 0; k < counts_.size(); ++k) {
    const double step = eta / (scale_ * bytes_[k]);
    of_kind_[k] = -counts_[k] * step + std::log1p(-std::exp(-step));
    most = std::max(most, of_kind_[k]);
  }
  // Never 0, so that no wavelength stays dark.
  for (double& one : of_kind_) one = std::exp(one - most) + 1e-12;
  for (size_t i = 0; i < weight_.size(); ++i) weight_[i] = of_kind_[kind_of_[i]] * tie_[i];
}

void RingPacking::count(const RingPattern& pattern, int32_t by) {
  choice_.visit(pattern, [&](int32_t pair) { counts_[kind_of_[pair]] += by; });
}

void RingPacking::count_all(const Patterns& patterns) {
  std::fill(counts_.begin(), counts_.end(), 0);
  for (const RingPattern& pattern : patterns) count(pattern, 1);
}

double RingPacking::slowest() const {
  double least = std::numeric_limits<double>::infinity();
  for (size_t k = 0; k < counts_.size(); ++k) least = std::min(least, counts_[k] / bytes_[k]);
  return least;
}

void RingPacking::run_rounds(Patterns& patterns) {
  count_all(patterns);
  Patterns best = patterns;
  double most = slowest();
  const double largest = *std::max_element(bytes_.begin(), bytes_.end());
  const int64_t looked = choice_.num_looked();
  // The first round sharpens what is there, and shows what a round costs; the others begin smoothly.
  int64_t num_rounds = 1;
  for (int64_t round = 0; round < num_rounds && most < bound_; ++round) {
    scale_ = std::max(most, bound_ / 16);
    const double last_eta = std::max(kFirstEta, kLastEtaPerWavelength * scale_ * largest);
    const double share = round == 0 ? 1 : static_cast<double>(round) / static_cast<double>(num_rounds - 1);
    const double eta = kFirstEta * std::pow(last_eta / kFirstEta, share);
    for (RingPattern& pattern : patterns) {
      poll_interrupt();
      count(pattern, -1);
      weigh(eta);
      pattern = choice_.best(pattern, weight_, effort_.choice);
      count(pattern, 1);
      if (choice_.num_looked() - looked > effort_.num_steps) break;
    }
    if (slowest() > most) {
      most = slowest();
      best = patterns;
    }
    if (round > 0) continue;
    num_rounds = std::min(effort_.num_steps / std::max(choice_.num_looked() - looked, int64_t{1}), kNumRounds);
  }
  patterns = std::move(best);
}

// The least ratio above the smallest that some pair can have.
double RingPacking::next_ratio() const {
  const double most = slowest();
  double next = std::numeric_limits<double>::infinity();
  for (const double bytes : bytes_) next = std::min(next, (std::floor(most * bytes * (1 + kRounding)) + 1) / bytes);
  return std::max(next, std::min(bound_, most * (1 + kLeastStep)));
}

void RingPacking::make_moves(Patterns& patterns) {
  for (;;) {
    count_all(patterns);
    const double target = next_ratio();
    if (target > bound_ * (1 + kRounding)) return;
    Patterns moved = patterns;
    if (!move_to(target, moved)) return;
    patterns = std::move(moved);
  }
}

// Returns how many wavelengths are missing.
int64_t RingPacking::set_needs(double target) {
  need_.resize(counts_.size());
  int64_t num_missing = 0;
  for (size_t k = 0; k < counts_.size(); ++k) {
    need_[k] = static_cast<int32_t>(std::ceil(target * bytes_[k] * (1 - kRounding)));
    num_missing += std::max(0, need_[k] - counts_[k]);
  }
  return num_missing;
}

// Of some wavelengths the one whose pattern is missed least.
size_t RingPacking::cheapest(const Patterns& patterns) {
  size_t chosen = 0;
  double least = std::numeric_limits<double>::infinity();
  for (int32_t k = 0; k < kNumCompared; ++k) {
    const auto one = static_cast<size_t>(choice_.draw() * static_cast<double>(patterns.size()));
    double missed = 0;
    choice_.visit(patterns[one], [&](int32_t pair) {
      const int32_t kind = kind_of_[pair];
      if (counts_[kind] <= need_[kind]) missed += price_[kind];
    });
    if (missed >= least) continue;
    least = missed;
    chosen = one;
  }
  return chosen;
}

// Returns whether the patterns reach the target.
bool RingPacking::move_to(double target, Patterns& patterns) {
  int64_t num_missing = set_needs(target);
  price_.assign(counts_.size(), 1);
  for (int32_t move = 0; num_missing > 0; ++move) {
    if (move == effort_.num_moves) return false;
    poll_interrupt();
    RingPattern& pattern = patterns[cheapest(patterns)];
    count(pattern, -1);
    for (size_t i = 0; i < weight_.size(); ++i) {
      const int32_t kind = kind_of_[i];
      const bool is_short = counts_[kind] < need_[kind];
      weight_[i] = is_short ? price_[kind] * (1 + kNoise * choice_.draw()) : kNextToNothing * (1 + choice_.draw());
    }
    pattern = choice_.best(pattern, weight_, effort_.of_moves);
    count(pattern, 1);
    num_missing = 0;
    for (size_t k = 0; k < counts_.size(); ++k) {
      if (counts_[k] >= need_[k]) continue;
      num_missing += need_[k] - counts_[k];
      price_[k] += kRise;
    }
  }
  return true;
}

void RingPacking::pack(Patterns& patterns) {
  run_rounds(patterns);
  if (effort_.num_moves > 0) make_moves(patterns);
}

// Patterns of num_turns wavelengths each as patterns of num_left each, a divisor; those left over serve nothing.
RingPacking::Patterns RingPacking::split(const Patterns& patterns, int32_t num_turns, int32_t num_left) const {
  Patterns found;
  for (const RingPattern& pattern : patterns) {
    for (int32_t turn = 0; turn < num_turns / num_left; ++turn)
      found.push_back(choice_.turned(pattern, turn * (n_ / num_turns)));
  }
  found.resize(static_cast<size_t>(num_wavelengths_ / num_left));
  return found;
}

// Packs with as many turns as there are, then with fewer, each beginning with what it was with more.
void RingPacking::pack_by_turns(Patterns& best) {
  take_turns(1);
  count_all(best);
  double most = slowest();
  Patterns patterns;
  int32_t last = 0;
  for (int32_t num_turns = std::min(n_, num_wavelengths_); num_turns > 1; --num_turns) {
    if (n_ % num_turns != 0 || last % num_turns != 0 || !take_turns(num_turns)) continue;
    patterns =
        last == 0 ? Patterns(static_cast<size_t>(num_wavelengths_ / num_turns)) : split(patterns, last, num_turns);
    pack(patterns);
    last = num_turns;
    Patterns single = split(patterns, num_turns, 1);
    count_all(patterns);
    if (slowest() <= most) continue;
    most = slowest();
    best = std::move(single);
  }
}

// Gives wavelengths to further pairs, wherever they are free, the slowest first.
void RingPacking::fill(Patterns& patterns) {
  count_all(patterns);
  std::vector<int32_t> order(counts_.size());
  const auto ratio = [this](int32_t pair) { return counts_[pair] / demand_.num_bytes[pair]; };
  for (RingPattern& pattern : patterns) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return ratio(a) < ratio(b); });
    choice_.fill(pattern, order, [this](int32_t pair) { ++counts_[pair]; });
  }
}

std::vector<RingCircuit> RingPacking::improve(const std::vector<RingCircuit>& begin, const PackingEffort& effort) {
  effort_ = effort;
  Patterns best(static_cast<size_t>(num_wavelengths_));
  for (const RingCircuit& one : begin)
    best[one.wavelength].ways[one.fibre].push_back(choice_.way_of(one.fibre, one.pair));
  if (effort_.num_moves > 0) pack_by_turns(best);
  take_turns(1);
  pack(best);
  fill(best);
  std::vector<RingCircuit> circuits;
  for (int32_t w = 0; w < num_wavelengths_; ++w) {
    for (int32_t fibre = 0; fibre < kNumFibres; ++fibre) {
      for (const int32_t way : best[w].ways[fibre]) circuits.push_back({choice_.way(fibre, way).pair, fibre, w});
    }
  }
  std::sort(circuits.begin(), circuits.end(), [](const RingCircuit& a, const RingCircuit& b) {
    return std::make_pair(a.pair, a.wavelength) < std::make_pair(b.pair, b.wavelength);
  });
  return circuits;
}

}  // namespace rostam::circuits
