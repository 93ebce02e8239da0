#include "circuits/ring_patterns.h"

#include <algorithm>
#include <tuple>

#include "sim/interrupt.h"
#include "sim/random.h"

namespace rostam::circuits {

namespace {

constexpr int32_t kNone = -1;

}  // namespace

RingPatterns::RingPatterns(const Demand& demand, const Ring& ring, const std::vector<std::vector<RingPath>>& ways,
                           uint64_t seed)
    : demand_(demand), n_(ring.num_accelerators), state_(mix(seed)) {
  const auto n = static_cast<size_t>(n_);
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
      way_of_[fibre][static_cast<size_t>(ways_[fibre][w].pair)] = static_cast<int32_t>(w);
    }
  }
  pair_of_.assign(n * n, kNone);
  for (size_t i = 0; i < ways.size(); ++i)
    pair_of_[static_cast<size_t>(demand.src[i]) * n + static_cast<size_t>(demand.dst[i])] = static_cast<int32_t>(i);
  driver_.assign(n, kNone);
  receiver_.assign(n, kNone);
  reached_.resize(n + 1);
  via_.resize(n + 1);
}

double RingPatterns::worth(const RingPattern& pattern) const {
  double sum = 0;
  visit(pattern, [&](int32_t pair) { sum += (*weight_)[static_cast<size_t>(pair)]; });
  return sum;
}

// The ways between two places of the cut ring that are worth most together; found_ holds them.
double RingPatterns::longest(int32_t fibre, const std::vector<double>& value, int32_t first, int32_t last) {
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
  found_.clear();
  for (int32_t p = last; p > first;) {
    const int32_t way = via_[p];
    if (way != kNone) found_.push_back(way);
    p = way == kNone ? p - 1 : ways[way].start;
  }
  return reached_[last];
}

// The ways of a fibre that are worth most together; one that the cut severs is worth trying while it and all others
// could be worth more.
void RingPatterns::choose(int32_t fibre, std::vector<double>& value, std::vector<int32_t>& chosen) {
  const std::vector<Way>& ways = ways_[fibre];
  const double uncut = longest(fibre, value, 0, n_);
  chosen = found_;
  double best = uncut;
  for (size_t w = num_whole_[fibre]; w < ways.size(); ++w) {
    if (value[w] <= 0 || value[w] + uncut <= best) continue;
    const double with = value[w] + longest(fibre, value, ways[w].end - n_, ways[w].start);
    if (with <= best) continue;
    best = with;
    chosen = found_;
    chosen.push_back(static_cast<int32_t>(w));
  }
}

void RingPatterns::mark_ends(const std::vector<int32_t>& ways, int32_t fibre) {
  std::fill(driver_.begin(), driver_.end(), kNone);
  std::fill(receiver_.begin(), receiver_.end(), kNone);
  for (const int32_t number : ways) {
    const int32_t pair = way(fibre, number).pair;
    driver_[demand_.src[pair]] = pair;
    receiver_[demand_.dst[pair]] = pair;
  }
}

// Chooses a fibre's ways anew. may_oust: where they are worth more than those of the other fibre that they keep from
// driving or receiving; else next to all of those.
void RingPatterns::settle(RingPattern& pattern, int32_t fibre, bool may_oust) {
  const int32_t other = 1 - fibre;
  const std::vector<double>& weight = *weight_;
  mark_ends(pattern.ways[other], other);
  value_.resize(ways_[fibre].size());
  for (size_t w = 0; w < value_.size(); ++w) {
    const int32_t pair = ways_[fibre][w].pair;
    const int32_t driver = driver_[demand_.src[pair]], receiver = receiver_[demand_.dst[pair]];
    double value = weight[pair];
    if (driver != kNone) value = may_oust ? value - weight[driver] : 0;
    if (receiver != kNone && receiver != driver) value = may_oust ? value - weight[receiver] : 0;
    value_[w] = value;
  }
  choose(fibre, value_, pattern.ways[fibre]);
  mark_ends(pattern.ways[fibre], fibre);
  auto& left = pattern.ways[other];
  const auto is_ousted = [&](int32_t number) {
    const int32_t pair = way(other, number).pair;
    return driver_[demand_.src[pair]] != kNone || receiver_[demand_.dst[pair]] != kNone;
  };
  left.erase(std::remove_if(left.begin(), left.end(), is_ousted), left.end());
}

double RingPatterns::draw() {
  state_ = mix(state_);
  return static_cast<double>(state_ >> 11) * 0x1p-53;
}

RingPattern RingPatterns::best(const RingPattern& before, const std::vector<double>& weight, const Effort& effort) {
  weight_ = &weight;
  RingPattern best = before;
  double most = worth(before);
  for (int32_t begin = 0; begin < effort.num_begins; ++begin) {
    RingPattern pattern = begin == 0 ? before : RingPattern();
    int32_t fibre = begin % kNumFibres;
    double last = begin == 0 ? most : 0;
    if (begin > kNumFibres) {
      value_.resize(ways_[fibre].size());
      for (size_t w = 0; w < value_.size(); ++w) value_[w] = weight[ways_[fibre][w].pair] * draw();
      choose(fibre, value_, pattern.ways[fibre]);
      fibre = 1 - fibre;
    }
    for (int32_t turn = 0, num_idle = 0; turn < effort.max_turns && num_idle < kNumFibres; ++turn, fibre = 1 - fibre) {
      poll_interrupt();
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

bool RingPatterns::take_if_free(int32_t fibre, const Way& way) {
  uint8_t &drives = drives_[demand_.src[way.pair]], &receives = receives_[demand_.dst[way.pair]];
  if (drives != 0 || receives != 0) return false;
  std::vector<uint8_t>& is_used = is_used_[fibre];
  for (int32_t p = way.start; p < way.end; ++p) {
    if (is_used[p % n_] != 0) return false;
  }
  for (int32_t p = way.start; p < way.end; ++p) is_used[p % n_] = 1;
  drives = receives = 1;
  return true;
}

int32_t RingPatterns::turned_pair(int32_t pair, int32_t by) const {
  const auto at = static_cast<size_t>(pair);
  return pair_of_[static_cast<size_t>((demand_.src[at] + by) % n_ * n_ + (demand_.dst[at] + by) % n_)];
}

bool RingPatterns::can_turn(int32_t by) const {
  for (int32_t fibre = 0; fibre < kNumFibres; ++fibre) {
    for (const Way& one : ways_[fibre]) {
      const int32_t pair = turned_pair(one.pair, by);
      if (pair == kNone || way_of(fibre, pair) == kNone) return false;
    }
  }
  return true;
}

RingPattern RingPatterns::turned(const RingPattern& pattern, int32_t by) const {
  RingPattern found;
  for (int32_t fibre = 0; fibre < kNumFibres; ++fibre) {
    for (const int32_t number : pattern.ways[fibre])
      found.ways[fibre].push_back(way_of(fibre, turned_pair(way(fibre, number).pair, by)));
  }
  return found;
}

}  // namespace rostam::circuits
