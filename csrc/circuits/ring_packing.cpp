#include "circuits/ring_packing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "sim/random.h"

namespace rostam::circuits {

namespace {

constexpr int32_t kNone = -1;
// Rounds over all wavelengths, and eta of the first and the last, in wavelengths of the pair that is aimed at most.
constexpr int64_t kNumRounds = 24;
constexpr double kFirstEta = 4;
constexpr double kLastEtaPerWavelength = 4;
// Pairs that are equally slow differ by so much.
constexpr double kTie = 1e-3;

}  // namespace

RingPacking::RingPacking(const Demand& demand, const Ring& ring, const std::vector<std::vector<RingPath>>& ways,
                         uint64_t seed)
    : demand_(demand), n_(ring.num_accelerators), num_wavelengths_(ring.num_wavelengths), state_(mix(seed)) {
  const auto n = static_cast<size_t>(n_);
  for (size_t i = 0; i < ways.size(); ++i) {
    tie_.push_back(1 + kTie * static_cast<double>(mix(mix(seed) + i) >> 11) * 0x1p-53);
  }
  for (int32_t fibre = 0; fibre < kNumFibres; ++fibre) {
    std::vector<int32_t> passing(n, 0);  // ways that pass a place without ending or beginning there
    for (const auto& of_pair : ways) {
      for (const RingPath& way : of_pair) {
        if (way.fibre != fibre) continue;
        for (int32_t p = way.start + 1; p < way.end; ++p) ++passing[static_cast<size_t>(p % n_)];
      }
    }
    origin_[fibre] = static_cast<int32_t>(std::min_element(passing.begin(), passing.end()) - passing.begin());
    for (size_t i = 0; i < ways.size(); ++i) {
      for (const RingPath& way : ways[i]) {
        if (way.fibre != fibre) continue;
        const int32_t start = (way.start - origin_[fibre] + n_) % n_;
        ways_[fibre].push_back({static_cast<int32_t>(i), start, start + way.num_hops()});
      }
    }
    const auto key = [this](const Way& way) { return std::make_tuple(way.end > n_, way.start, way.end, way.pair); };
    std::sort(ways_[fibre].begin(), ways_[fibre].end(), [&](const Way& a, const Way& b) { return key(a) < key(b); });
    way_of_[fibre].assign(ways.size(), kNone);
    for (size_t w = 0; w < ways_[fibre].size(); ++w) {
      num_whole_[fibre] += ways_[fibre][w].end <= n_;
      way_of_[fibre][ways_[fibre][w].pair] = static_cast<int32_t>(w);
    }
  }
  counts_.assign(ways.size(), 0);
  weight_.assign(ways.size(), 0);
  driver_.assign(n, kNone);
  receiver_.assign(n, kNone);
  reached_.resize(n + 1);
  via_.resize(n + 1);
}

// What one wavelength more takes off the sum over pairs of exp(-eta count / (scale bytes)).
void RingPacking::weigh(double eta) {
  double most = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < counts_.size(); ++i) {
    const double step = eta / (scale_ * demand_.num_bytes[i]);
    weight_[i] = -counts_[i] * step + std::log1p(-std::exp(-step));
    most = std::max(most, weight_[i]);
  }
  // Never 0, so that no wavelength stays dark.
  for (size_t i = 0; i < counts_.size(); ++i) weight_[i] = (std::exp(weight_[i] - most) + 1e-12) * tie_[i];
}

double RingPacking::worth(const Pattern& pattern) const {
  double sum = 0;
  for (int32_t fibre = 0; fibre < kNumFibres; ++fibre) {
    for (const int32_t way : pattern.ways[fibre]) sum += weight_[ways_[fibre][way].pair];
  }
  return sum;
}

void RingPacking::count(const Pattern& pattern, int32_t by) {
  for (int32_t fibre = 0; fibre < kNumFibres; ++fibre) {
    for (const int32_t way : pattern.ways[fibre]) counts_[ways_[fibre][way].pair] += by;
  }
}

double RingPacking::slowest() const {
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < counts_.size(); ++i) least = std::min(least, counts_[i] / demand_.num_bytes[i]);
  return least;
}

// The ways between two places of the cut ring that are worth most together; found_ holds them if is_kept.
double RingPacking::longest(int32_t fibre, const std::vector<double>& value, int32_t first, int32_t last,
                            bool is_kept) {
  const std::vector<Way>& ways = ways_[fibre];
  std::fill(reached_.begin() + first, reached_.begin() + last + 1, 0.0);
  std::fill(via_.begin() + first, via_.begin() + last + 1, kNone);
  const auto begin = std::lower_bound(ways.begin(), ways.begin() + static_cast<std::ptrdiff_t>(num_whole_[fibre]),
                                      first, [](const Way& way, int32_t place) { return way.start < place; });
  auto w = static_cast<size_t>(begin - ways.begin());
  for (int32_t p = first; p < last; ++p) {
    double most = 0;  // of the shorter ways from here: a longer one of less worth serves nothing
    for (; w < num_whole_[fibre] && ways[w].start == p; ++w) {
      ++num_looked_;
      if (ways[w].end > last || value[w] <= most) continue;
      most = value[w];
      const double here = reached_[p] + value[w];
      if (here <= reached_[ways[w].end]) continue;
      reached_[ways[w].end] = here;
      via_[ways[w].end] = static_cast<int32_t>(w);
    }
    if (reached_[p] >= reached_[p + 1]) {
      reached_[p + 1] = reached_[p];
      via_[p + 1] = kNone;
    }
  }
  if (is_kept) {
    found_.clear();
    for (int32_t p = last; p > first;) {
      const int32_t way = via_[p];
      if (way != kNone) found_.push_back(way);
      p = way == kNone ? p - 1 : ways[way].start;
    }
  }
  return reached_[last];
}

// The ways of a fibre that are worth most together; one that the cut severs is worth trying while it and all others
// could be worth more.
void RingPacking::choose(int32_t fibre, std::vector<double>& value, std::vector<int32_t>& chosen) {
  const std::vector<Way>& ways = ways_[fibre];
  const double uncut = longest(fibre, value, 0, n_, true);
  chosen = found_;
  double best = uncut;
  for (size_t w = num_whole_[fibre]; w < ways.size(); ++w) {
    if (value[w] <= 0 || value[w] + uncut <= best) continue;
    const double with = value[w] + longest(fibre, value, ways[w].end - n_, ways[w].start, true);
    if (with <= best) continue;
    best = with;
    chosen = found_;
    chosen.push_back(static_cast<int32_t>(w));
  }
}

void RingPacking::mark_ends(const std::vector<int32_t>& ways, int32_t fibre) {
  std::fill(driver_.begin(), driver_.end(), kNone);
  std::fill(receiver_.begin(), receiver_.end(), kNone);
  for (const int32_t way : ways) {
    const int32_t pair = ways_[fibre][way].pair;
    driver_[demand_.src[pair]] = pair;
    receiver_[demand_.dst[pair]] = pair;
  }
}

// Chooses a fibre's ways anew. may_oust: where they are worth more than those of the other fibre that they keep from
// driving or receiving; else next to all of those.
void RingPacking::settle(Pattern& pattern, int32_t fibre, bool may_oust) {
  const int32_t other = 1 - fibre;
  mark_ends(pattern.ways[other], other);
  value_.resize(ways_[fibre].size());
  for (size_t w = 0; w < value_.size(); ++w) {
    const int32_t pair = ways_[fibre][w].pair;
    const int32_t driver = driver_[demand_.src[pair]], receiver = receiver_[demand_.dst[pair]];
    double value = weight_[pair];
    if (driver != kNone) value = may_oust ? value - weight_[driver] : 0;
    if (receiver != kNone && receiver != driver) value = may_oust ? value - weight_[receiver] : 0;
    value_[w] = value;
  }
  choose(fibre, value_, pattern.ways[fibre]);
  mark_ends(pattern.ways[fibre], fibre);
  auto& left = pattern.ways[other];
  const auto is_ousted = [&](int32_t way) {
    const int32_t pair = ways_[other][way].pair;
    return driver_[demand_.src[pair]] != kNone || receiver_[demand_.dst[pair]] != kNone;
  };
  left.erase(std::remove_if(left.begin(), left.end(), is_ousted), left.end());
}

double RingPacking::draw() {
  state_ = mix(state_);
  return static_cast<double>(state_ >> 11) * 0x1p-53;
}

RingPacking::Pattern RingPacking::best_pattern(const Pattern& before) {
  Pattern best = before;
  double most = worth(before);
  for (int32_t begin = 0; begin < effort_.num_begins; ++begin) {
    Pattern pattern = begin == 0 ? before : Pattern();
    int32_t fibre = begin % kNumFibres;
    double last = begin == 0 ? most : 0;
    if (begin > kNumFibres) {
      value_.resize(ways_[fibre].size());
      for (size_t w = 0; w < value_.size(); ++w) value_[w] = weight_[ways_[fibre][w].pair] * draw();
      choose(fibre, value_, pattern.ways[fibre]);
      fibre = 1 - fibre;
    }
    for (int32_t turn = 0, num_idle = 0; turn < effort_.max_turns && num_idle < kNumFibres; ++turn, fibre = 1 - fibre) {
      settle(pattern, fibre, true);
      settle(pattern, 1 - fibre, false);
      const double now = worth(pattern);
      num_idle = now > last ? 0 : num_idle + 1;
      last = std::max(last, now);
      if (now <= most) continue;
      most = now;
      best = pattern;
    }
  }
  return best;
}

// Gives a wavelength to further pairs, wherever it is free, the slowest first.
void RingPacking::fill(Pattern& pattern) {
  std::vector<int32_t> order(counts_.size());
  std::iota(order.begin(), order.end(), 0);
  const auto ratio = [this](int32_t pair) { return counts_[pair] / demand_.num_bytes[pair]; };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return ratio(a) < ratio(b); });
  std::vector<uint8_t> is_used[kNumFibres], drives(driver_.size(), 0), receives(drives);
  const auto take = [&](int32_t fibre, const Way& way) {
    for (int32_t p = way.start; p < way.end; ++p) is_used[fibre][p % n_] = 1;
    drives[demand_.src[way.pair]] = receives[demand_.dst[way.pair]] = 1;
  };
  for (int32_t fibre = 0; fibre < kNumFibres; ++fibre) {
    is_used[fibre].assign(driver_.size(), 0);
    for (const int32_t way : pattern.ways[fibre]) take(fibre, ways_[fibre][way]);
  }
  for (const int32_t pair : order) {
    for (int32_t fibre = 0; fibre < kNumFibres; ++fibre) {
      if (way_of_[fibre][pair] == kNone || drives[demand_.src[pair]] || receives[demand_.dst[pair]]) continue;
      const Way& way = ways_[fibre][way_of_[fibre][pair]];
      bool is_free = true;
      for (int32_t p = way.start; p < way.end; ++p) is_free = is_free && !is_used[fibre][p % n_];
      if (!is_free) continue;
      take(fibre, way);
      pattern.ways[fibre].push_back(way_of_[fibre][pair]);
      ++counts_[pair];
    }
  }
}

std::vector<RingCircuit> RingPacking::improve(const std::vector<RingCircuit>& begin, const PackingEffort& effort) {
  effort_ = effort;
  const size_t num_pairs = counts_.size();
  std::vector<Pattern> patterns(static_cast<size_t>(num_wavelengths_));
  std::fill(counts_.begin(), counts_.end(), 0);
  for (const RingCircuit& one : begin) {
    patterns[one.wavelength].ways[one.fibre].push_back(way_of_[one.fibre][one.pair]);
    ++counts_[one.pair];
  }
  std::vector<Pattern> best = patterns;
  double most = slowest();
  // No pair has more than its accelerators can share out.
  std::vector<double> sent(static_cast<size_t>(n_), 0), received(sent);
  for (size_t i = 0; i < num_pairs; ++i) {
    sent[demand_.src[i]] += demand_.num_bytes[i];
    received[demand_.dst[i]] += demand_.num_bytes[i];
  }
  const double bound = num_wavelengths_ / std::max(*std::max_element(sent.begin(), sent.end()),
                                                   *std::max_element(received.begin(), received.end()));
  const double largest = *std::max_element(demand_.num_bytes.begin(), demand_.num_bytes.end());
  num_looked_ = 0;
  // The first round sharpens what is there, and shows what a round costs; the others begin smoothly.
  int64_t num_rounds = 1;
  for (int64_t round = 0; round < num_rounds && most < bound; ++round) {
    scale_ = std::max(most, bound / 16);
    const double last_eta = std::max(kFirstEta, kLastEtaPerWavelength * scale_ * largest);
    const double share = round == 0 ? 1 : static_cast<double>(round) / static_cast<double>(num_rounds - 1);
    const double eta = kFirstEta * std::pow(last_eta / kFirstEta, share);
    for (Pattern& pattern : patterns) {
      count(pattern, -1);
      weigh(eta);
      pattern = best_pattern(pattern);
      count(pattern, 1);
      if (num_looked_ > effort_.num_steps) break;
    }
    if (slowest() > most) {
      most = slowest();
      best = patterns;
    }
    if (round == 0) num_rounds = std::min(effort_.num_steps / std::max(num_looked_, int64_t{1}), kNumRounds);
  }
  std::fill(counts_.begin(), counts_.end(), 0);
  for (const Pattern& pattern : best) count(pattern, 1);
  for (Pattern& pattern : best) fill(pattern);
  std::vector<RingCircuit> circuits;
  for (int32_t w = 0; w < num_wavelengths_; ++w) {
    for (int32_t fibre = 0; fibre < kNumFibres; ++fibre) {
      for (const int32_t way : best[w].ways[fibre]) circuits.push_back({ways_[fibre][way].pair, fibre, w});
    }
  }
  std::sort(circuits.begin(), circuits.end(), [](const RingCircuit& a, const RingCircuit& b) {
    return std::make_pair(a.pair, a.wavelength) < std::make_pair(b.pair, b.wavelength);
  });
  return circuits;
}

}  // namespace rostam::circuits
