#include "circuits/ring_wavelengths.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>
#include <queue>
#include <utility>

#include "circuits/ring_counts.h"
#include "circuits/ring_flow.h"
#include "circuits/ring_packing.h"
#include "circuits/wavelength_table.h"
#include "sim/errors.h"

namespace rostam::circuits {

namespace {

// Price of leaving a segment or port idle: each further wavelength of slack makes it so much cheaper. Steep prices
// fill what is full already, flat ones what is nearly full too; none is best everywhere, so that demands too tight for
// the first are tried with others, and with other cuts, as long as W (N + P) is small.
constexpr double kDecays[] = {2, 1.1, 8, 1.5, 32, 3, 1.05, 1.02};
constexpr int64_t kMaxWork = 4000000;
// Ways to serve least counts besides flows.
constexpr int32_t kWarm = -2, kSweep = -1;
// Wavelengths a pair from which on a sweep takes less time than flows.
constexpr int64_t kLeastMeanCount = 2;
// Pairs that may have to give way for another one at a wavelength.
constexpr size_t kMaxMoved = 3;
// Pairs for which others are moved, at most: bounds the time on demands that cannot be met anyway. Of a setting within
// a run: 40 in turn for 1,024 accelerators (groups of 8 and 16 and a ring across them, sizes drawn anew, 320
// wavelengths) take 18 and 23 ms on average with 128, 20 and 26 with 4,096 (at most 83 and 119) and 31 and 30 with
// none, which then leaves it to flows and renames 86% of the circuits, not 59%. The slowest pair is as fast with each,
// and with 2 to 32 that fail.
constexpr int32_t kMaxMended = 4096;
constexpr int32_t kMaxMendedSwift = 128, kMaxFailedSwift = 8;
// Edges that choosing between both ways looks at, at most: of a setting before a run, and of one of many within it.
constexpr int64_t kMaxLooked = 100000000;
constexpr int64_t kMaxLookedAgain = 1000000;
// Each round of filling lifts the ratio by so much.
constexpr double kFillStep = 1.1;

class Assignment {
 public:
  // is_swift: one sweep round the ring goes first, which mostly does; see serve_sweep().
  // held: circuits that pairs have now, ascending.
  Assignment(const Demand& demand, const Ring& ring, std::vector<RingPath> paths, uint64_t seed, bool is_swift,
             const std::vector<RingCircuit>& held)
      : demand_(demand),
        ring_(ring),
        is_swift_(is_swift),
        held_(held),
        paths_(std::move(paths)),
        wanted_(count_wavelengths(demand, ring, paths_, seed)),
        got_(paths_.size(), 0) {}

  RingWavelengths run() {
    assign();
    fill();
    return collect();
  }

 private:
  // Serves the least counts as far as they fit, with the best of several ways if one leaves the slowest pair short.
  void assign() {
    const int64_t work = int64_t{ring_.num_wavelengths} * (ring_.num_accelerators + static_cast<int64_t>(got_.size()));
    const int64_t most_ways = is_swift_ ? 1 : static_cast<int64_t>(std::size(kDecays));
    const int64_t num_ways = std::clamp(kMaxWork / work, int64_t{1}, most_ways);
    const int64_t num_wanted = std::accumulate(wanted_.begin(), wanted_.end(), int64_t{0});
    const bool sweeps = is_swift_ && num_wanted >= kLeastMeanCount * static_cast<int64_t>(wanted_.size());
    const int32_t first = !sweeps ? 0 : (held_.empty() ? kSweep : kWarm);
    std::vector<int32_t> best_got;
    std::unique_ptr<WavelengthTable> best_table;
    for (int32_t way = first; way < num_ways; ++way) {
      got_.assign(got_.size(), 0);
      table_ = std::make_unique<WavelengthTable>(demand_, ring_, paths_);
      if (way < 0) {
        if (way == kWarm) keep_held();
        serve_sweep();
      } else {
        serve_flows(way);
      }
      mend(way < 0 ? kMaxMendedSwift : kMaxMended, is_swift_ ? kMaxFailedSwift : kMaxMended);
      if (best_table == nullptr || slowest_ratio(got_) > slowest_ratio(best_got)) {
        best_got = got_;
        best_table = std::move(table_);
        keeps_names_ = way == kWarm;
      }
      if (slowest_ratio(best_got) >= slowest_ratio(wanted_)) break;
    }
    got_ = std::move(best_got);
    table_ = std::move(best_table);
  }

  // Leaves pairs what they have of their least counts.
  void keep_held() {
    held_words_.assign(paths_.size() * table_->num_words(), 0);
    for (const RingCircuit& one : held_) {
      const size_t pair = static_cast<size_t>(one.pair), w = static_cast<size_t>(one.wavelength);
      if (one.fibre != paths_[pair].fibre) continue;
      held_words_[pair * table_->num_words() + w / WavelengthTable::kWordBits] |= WavelengthTable::Word{1}
                                                                                  << (w % WavelengthTable::kWordBits);
    }
    for (size_t i = 0; i < got_.size(); ++i) give_held(static_cast<int32_t>(i), wanted_[i]);
  }

  // Gives up to `count` of what the pair holds and is free: on the fibre that is swept from the top the highest ones
  // first. Returns how many.
  int32_t give_held(int32_t pair, int32_t count) {
    const size_t i = static_cast<size_t>(pair);
    const int32_t given = table_->give_free(pair, count, paths_[i].fibre == 1, &held_words_[i * table_->num_words()]);
    got_[i] += given;
    return given;
  }

  // Gives each pair its least count at once, in the order of travel from where the fibre carries least: the lowest free
  // wavelengths on one fibre, and the highest on the other, so that what accelerators drive, or receive, on both seldom
  // meets. On a line the lowest free ones always suffice; here what goes past the beginning may be left short.
  // Cost: O(P x hops x W / 64).
  void serve_sweep() {
    const int32_t n = ring_.num_accelerators;
    std::vector<std::pair<int32_t, int32_t>> order;  // places from the beginning, pair
    for (int32_t fibre = 0; fibre < kNumFibres; ++fibre) {
      std::vector<int64_t> load(static_cast<size_t>(n) + 1, 0);
      for (size_t i = 0; i < paths_.size(); ++i) {
        if (paths_[i].fibre != fibre) continue;
        for (int32_t p = paths_[i].start; p < paths_[i].end; ++p) load[static_cast<size_t>(p % n)] += wanted_[i];
      }
      const auto least = std::min_element(load.begin(), load.end() - 1);
      const auto first = static_cast<int32_t>(least - load.begin());
      order.clear();
      for (size_t i = 0; i < paths_.size(); ++i) {
        if (paths_[i].fibre != fibre) continue;
        const int32_t start = (paths_[i].start - first + n) % n;
        const bool goes_past = start + paths_[i].num_hops() > n;
        order.emplace_back(goes_past ? start - n : start, static_cast<int32_t>(i));
      }
      std::sort(order.begin(), order.end());
      for (const auto& [start, pair] : order) {
        const int32_t missing = wanted_[static_cast<size_t>(pair)] - got_[static_cast<size_t>(pair)];
        got_[static_cast<size_t>(pair)] += table_->give_free(pair, missing, fibre == 1);
      }
    }
  }

  // Gives every wavelength to one flow on each fibre; the fibre that chooses first changes with each.
  void serve_flows(int32_t way) {
    const size_t n = static_cast<size_t>(ring_.num_accelerators);
    std::vector<double> price(static_cast<size_t>(ring_.num_wavelengths) + 1);
    for (size_t slack = 0; slack < price.size(); ++slack)
      price[slack] = std::pow(kDecays[way], -static_cast<double>(slack));
    std::vector<RingFlow> flows;
    for (int32_t fibre = 0; fibre < kNumFibres; ++fibre) {
      flows.emplace_back(ring_, fibre, demand_.src, demand_.dst, paths_, wanted_, way);
    }
    std::vector<int32_t> sends(n, 0);
    std::vector<int32_t> receives(n, 0);
    for (size_t i = 0; i < wanted_.size(); ++i) {
      sends[static_cast<size_t>(demand_.src[i])] += wanted_[i];
      receives[static_cast<size_t>(demand_.dst[i])] += wanted_[i];
    }
    RingFlow::Taken taken{std::vector<uint8_t>(n), std::vector<uint8_t>(n)};
    std::vector<int32_t> served;
    for (int32_t w = 0; w < ring_.num_wavelengths; ++w) {
      served.clear();
      std::fill(taken.drives.begin(), taken.drives.end(), uint8_t{0});
      std::fill(taken.receives.begin(), taken.receives.end(), uint8_t{0});
      for (int32_t turn = 0; turn < kNumFibres; ++turn) {
        flows[static_cast<size_t>((w + turn) % kNumFibres)].serve(ring_.num_wavelengths - w, price, taken, sends,
                                                                  receives, served);
        for (const int32_t pair : served) {
          taken.drives[static_cast<size_t>(demand_.src[static_cast<size_t>(pair)])] = 1;
          taken.receives[static_cast<size_t>(demand_.dst[static_cast<size_t>(pair)])] = 1;
        }
      }
      for (const int32_t pair : served) give(pair, w);
    }
  }

  void give(int32_t pair, int32_t wavelength) {
    table_->give(pair, wavelength);
    ++got_[static_cast<size_t>(pair)];
  }

  void take_back(int32_t pair, int32_t wavelength) {
    table_->take_back(pair, wavelength);
    --got_[static_cast<size_t>(pair)];
  }

  double slowest_ratio(const std::vector<int32_t>& counts) const {
    double slowest = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < counts.size(); ++i) slowest = std::min(slowest, counts[i] / demand_.num_bytes[i]);
    return slowest;
  }

  double ratio(int32_t pair, int32_t count) const { return count / demand_.num_bytes[static_cast<size_t>(pair)]; }

  // Moves others for pairs that came off with less than their least count, the slowest first.
  void mend(int32_t most_tries, int32_t most_failed) {
    using Entry = std::pair<double, int32_t>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> slowest;
    const auto push_short = [&](int32_t pair) {
      const size_t i = static_cast<size_t>(pair);
      if (got_[i] < wanted_[i]) slowest.push({ratio(pair, got_[i]), pair});
    };
    for (size_t i = 0; i < got_.size(); ++i) push_short(static_cast<int32_t>(i));
    int32_t num_failed = 0;
    for (int32_t tries = 0; !slowest.empty() && tries < most_tries && num_failed < most_failed; ++tries) {
      const int32_t pair = slowest.top().second;
      slowest.pop();
      if (got_[static_cast<size_t>(pair)] >= wanted_[static_cast<size_t>(pair)]) continue;
      if (!make_room(pair)) {
        ++num_failed;
        continue;
      }
      push_short(pair);
      for (const int32_t other : holders_) push_short(other);
    }
  }

  // Gives free wavelengths in rounds, each lifting the ratio that pairs are to reach: slow pairs take theirs first.
  void fill() {
    std::vector<int32_t> open(got_.size());
    std::iota(open.begin(), open.end(), 0);
    first_free_.assign(got_.size(), 0);
    has_held_.assign(got_.size(), keeps_names_);
    double level = std::numeric_limits<double>::infinity();
    for (const int32_t pair : open) level = std::min(level, ratio(pair, std::max(1, got_[static_cast<size_t>(pair)])));
    for (; !open.empty(); level *= kFillStep) {
      const auto is_done = [&](int32_t pair) { return !lift(pair, level); };
      open.erase(std::remove_if(open.begin(), open.end(), is_done), open.end());
    }
  }

  // Returns whether `pair` may find more wavelengths free later on.
  bool lift(int32_t pair, double level) {
    const size_t i = static_cast<size_t>(pair);
    const double missing = std::min(level * demand_.num_bytes[i], ring_.num_wavelengths + 1.0) - got_[i];
    if (missing <= 0) return true;
    const int32_t count = static_cast<int32_t>(std::ceil(missing));
    const int32_t kept = has_held_[i] ? give_held(pair, count) : 0;
    if (kept == count) return true;
    has_held_[i] = false;  // filling takes nothing back, so that none becomes free again
    const int32_t given = table_->give_free_from(pair, count - kept, first_free_[i]);
    got_[i] += given;
    return kept + given == count;
  }

  // Makes room for `pair` on some wavelength: those that hold it there move to others that are free, or give it up
  // where they stay faster than `pair` is. Returns whether it could.
  bool make_room(int32_t pair) {
    for (const bool may_give_up : {false, true}) {
      for (int32_t w = 0; w < ring_.num_wavelengths; ++w) {
        table_->holders(pair, w, kMaxMoved, holders_);
        if (holders_.size() <= kMaxMoved && displace(pair, w, may_give_up)) return true;
      }
    }
    return false;
  }

  bool displace(int32_t pair, int32_t wavelength, bool may_give_up) {
    const double own = ratio(pair, got_[static_cast<size_t>(pair)]);
    for (const int32_t other : holders_) take_back(other, wavelength);
    give(pair, wavelength);
    std::vector<std::pair<int32_t, int32_t>> moved;
    bool is_done = true;
    for (const int32_t other : holders_) {
      const int32_t free = table_->first_free(other);
      if (free != WavelengthTable::kNobody) {
        give(other, free);
        moved.emplace_back(other, free);
      } else if (!may_give_up || ratio(other, got_[static_cast<size_t>(other)]) <= own) {
        is_done = false;
        break;
      }
    }
    if (is_done) return true;
    for (const auto& [other, free] : moved) take_back(other, free);
    take_back(pair, wavelength);
    for (const int32_t other : holders_) give(other, wavelength);
    return false;
  }

  RingWavelengths collect() const {
    RingWavelengths result;
    result.count = got_;
    result.target = wanted_;
    result.keeps_names = keeps_names_;
    std::vector<int64_t> next(got_.size() + 1, 0);
    for (size_t i = 0; i < got_.size(); ++i) {
      result.num_hops.push_back(paths_[i].num_hops());
      next[i + 1] = next[i] + got_[i];
    }
    result.circuit_pair.resize(static_cast<size_t>(next.back()));
    result.circuit_fibre.resize(static_cast<size_t>(next.back()));
    result.circuit_wavelength.resize(static_cast<size_t>(next.back()));
    for (int32_t a = 0; a < ring_.num_accelerators; ++a) {
      table_->visit_driven(a, [&](int32_t wavelength, int32_t pair) {
        const size_t at = static_cast<size_t>(next[static_cast<size_t>(pair)]++);
        result.circuit_pair[at] = pair;
        result.circuit_fibre[at] = paths_[static_cast<size_t>(pair)].fibre;
        result.circuit_wavelength[at] = wavelength;
      });
    }
    return result;
  }

  const Demand& demand_;
  const Ring& ring_;
  bool is_swift_;
  const std::vector<RingCircuit>& held_;
  std::vector<RingPath> paths_;
  std::vector<int32_t> wanted_;
  std::vector<int32_t> got_;
  std::unique_ptr<WavelengthTable> table_;
  std::vector<WavelengthTable::Word> held_words_;  // (pair, word) -> what it holds on its fibre
  std::vector<size_t> first_free_;                 // of filling, a pair's first word that may have a free one
  std::vector<uint8_t> has_held_;                  // of filling, whether what a pair holds may be free
  std::vector<int32_t> holders_;
  bool keeps_names_ = false;
};

// No wavelength twice on a segment of a fibre; each driven, and received, on one fibre at most; reach kept; paths end
// where they should. Built anew from the result alone.
void check_ring(const Demand& demand, const Ring& ring, const RingWavelengths& found) {
  constexpr size_t kWordBits = 64;
  const size_t n = static_cast<size_t>(ring.num_accelerators);
  const size_t num_words = static_cast<size_t>(ring.num_wavelengths) / kWordBits + 1;
  std::vector<uint64_t> used(4 * n * num_words, 0);  // rows: segments of both fibres, drivers, receivers
  std::vector<uint64_t> own(num_words);              // of one pair on one fibre
  const auto use = [&](size_t row, size_t pair) {
    for (size_t word = 0; word < num_words; ++word) {
      ROSTAM_CHECK(!(used[row * num_words + word] & own[word]), "pair " << pair << " has a wavelength used already");
      used[row * num_words + word] |= own[word];
    }
  };
  size_t next = 0;
  for (size_t i = 0; i < found.count.size(); ++i) {
    const size_t first = next;
    while (next < found.circuit_pair.size() && found.circuit_pair[next] == static_cast<int32_t>(i)) ++next;
    for (int32_t fibre = 0; fibre < kNumFibres; ++fibre) {
      std::fill(own.begin(), own.end(), uint64_t{0});
      bool is_taken = false;
      for (size_t c = first; c < next; ++c) {
        if (found.circuit_fibre[c] != fibre) continue;
        const size_t wavelength = static_cast<size_t>(found.circuit_wavelength[c]);
        uint64_t& word = own[wavelength / kWordBits];
        const uint64_t bit = uint64_t{1} << (wavelength % kWordBits);
        ROSTAM_CHECK(!(word & bit), "pair " << i << " has wavelength " << wavelength << " twice");
        word |= bit;
        is_taken = true;
      }
      if (!is_taken) continue;
      use(2 * n + static_cast<size_t>(demand.src[i]), i);
      use(3 * n + static_cast<size_t>(demand.dst[i]), i);
      const int32_t step = fibre == 0 ? 1 : -1;
      int32_t here = demand.src[i], num_hops = 0;
      for (; here != demand.dst[i]; ++num_hops) {
        if (fibre == 1) here = (here + step + ring.num_accelerators) % ring.num_accelerators;
        use(static_cast<size_t>(fibre) * n + static_cast<size_t>(here), i);
        if (fibre == 0) here = (here + step) % ring.num_accelerators;
      }
      ROSTAM_CHECK(num_hops <= ring.reach && num_hops <= found.num_hops[i],
                   "pair " << i << " is " << num_hops << " hops long");
    }
  }
  ROSTAM_CHECK(next == found.circuit_pair.size(), "circuits are not in the order of their pairs");
}

// Pairs that find a wavelength each, the largest demands first; ascending.
std::vector<size_t> admit(const Demand& demand, const Ring& ring, const std::vector<RingPath>& paths) {
  const auto n = static_cast<size_t>(ring.num_accelerators);
  std::vector<int32_t> load(4 * n, 0);  // segments of both fibres, drivers, receivers
  const auto all_of_rows = [&](size_t i, const auto& visit) {
    if (!visit(load[2 * n + static_cast<size_t>(demand.src[i])])) return false;
    if (!visit(load[3 * n + static_cast<size_t>(demand.dst[i])])) return false;
    int32_t* const fibre = &load[static_cast<size_t>(paths[i].fibre) * n];
    for (int32_t p = paths[i].start; p < paths[i].end; ++p) {
      const size_t place = static_cast<size_t>(p);
      if (!visit(fibre[place < n ? place : place % n])) return false;
    }
    return true;
  };
  std::vector<size_t> order(paths.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t i, size_t j) { return demand.num_bytes[i] > demand.num_bytes[j]; });
  std::vector<size_t> admitted;
  for (const size_t i : order) {
    if (!all_of_rows(i, [&](int32_t row) { return row < ring.num_wavelengths; })) continue;
    all_of_rows(i, [](int32_t& row) { return ++row > 0; });
    admitted.push_back(i);
  }
  std::sort(admitted.begin(), admitted.end());
  return admitted;
}

// The same for all pairs of a demand, of which only some were served.
RingWavelengths among_all(const RingWavelengths& found, const std::vector<size_t>& served,
                          const std::vector<RingPath>& paths) {
  RingWavelengths all = found;
  all.count.assign(paths.size(), 0);
  all.target.assign(paths.size(), 0);
  all.num_hops.clear();
  for (const RingPath& path : paths) all.num_hops.push_back(path.num_hops());
  for (size_t k = 0; k < served.size(); ++k) {
    all.count[served[k]] = found.count[k];
    all.target[served[k]] = found.target[k];
  }
  for (int32_t& pair : all.circuit_pair) pair = static_cast<int32_t>(served[static_cast<size_t>(pair)]);
  return all;
}

// One way for each pair; where may_leave_out, none for pairs that find no wavelength.
RingWavelengths one_way(const Demand& demand, const Ring& ring, uint64_t seed, bool may_leave_out, bool is_swift,
                        const std::vector<RingCircuit>& held) {
  std::vector<RingPath> paths = choose_paths(demand, ring);
  const std::vector<size_t> admitted = may_leave_out ? admit(demand, ring, paths) : std::vector<size_t>();
  if (!may_leave_out || admitted.size() == paths.size())
    return Assignment(demand, ring, std::move(paths), seed, is_swift, held).run();
  Demand fitting;
  fitting.num_accelerators = demand.num_accelerators;
  std::vector<RingPath> fitting_paths;
  std::vector<int32_t> number(paths.size(), -1);
  for (const size_t i : admitted) {
    number[i] = static_cast<int32_t>(fitting.src.size());
    fitting.src.push_back(demand.src[i]);
    fitting.dst.push_back(demand.dst[i]);
    fitting.num_bytes.push_back(demand.num_bytes[i]);
    fitting_paths.push_back(paths[i]);
  }
  std::vector<RingCircuit> fitting_held;
  for (const RingCircuit& one : held) {
    const int32_t pair = number[static_cast<size_t>(one.pair)];
    if (pair >= 0) fitting_held.push_back({pair, one.fibre, one.wavelength});
  }
  Assignment assignment(fitting, ring, std::move(fitting_paths), seed, is_swift, fitting_held);
  return among_all(assignment.run(), admitted, paths);
}

// Either way, or both at once.
RingWavelengths both_ways(const Demand& demand, const Ring& ring, uint64_t seed,
                          const std::vector<std::vector<RingPath>>& ways, RingWavelengths found, int64_t num_steps) {
  std::vector<RingCircuit> circuits;
  for (size_t c = 0; c < found.circuit_pair.size(); ++c)
    circuits.push_back({found.circuit_pair[c], found.circuit_fibre[c], found.circuit_wavelength[c]});
  circuits = RingPacking(demand, ring, ways, seed).improve(circuits, num_steps);
  found.circuit_pair.clear();
  found.circuit_fibre.clear();
  found.circuit_wavelength.clear();
  std::fill(found.count.begin(), found.count.end(), 0);
  std::vector<int32_t> num_hops(found.count.size(), 0);
  for (const RingCircuit& one : circuits) {
    found.circuit_pair.push_back(one.pair);
    found.circuit_fibre.push_back(one.fibre);
    found.circuit_wavelength.push_back(one.wavelength);
    ++found.count[one.pair];
    for (const RingPath& way : ways[one.pair]) {
      if (way.fibre == one.fibre) num_hops[one.pair] = std::max(num_hops[one.pair], way.num_hops());
    }
  }
  for (size_t i = 0; i < num_hops.size(); ++i) {
    if (num_hops[i] > 0) found.num_hops[i] = num_hops[i];
  }
  return found;
}

}  // namespace

RingWavelengths set_ring_wavelengths(const Demand& demand, const Ring& ring, uint64_t seed, bool may_leave_out,
                                     const std::vector<RingCircuit>& held) {
  bool is_both_ways = false;
  std::vector<std::vector<RingPath>> ways;
  if (ring.num_accelerators <= kNumFibres * ring.reach && !demand.src.empty()) {
    ways = open_ways(demand, ring);
    is_both_ways = std::any_of(ways.begin(), ways.end(), [](const auto& all) { return all.size() > 1; });
  }
  RingWavelengths found =
      one_way(demand, ring, seed, may_leave_out || is_both_ways, may_leave_out && !is_both_ways, held);
  if (is_both_ways) {
    found.keeps_names = false;
    found = both_ways(demand, ring, seed, ways, std::move(found), may_leave_out ? kMaxLookedAgain : kMaxLooked);
  }
  for (size_t i = 0; i < found.count.size() && !may_leave_out; ++i) {
    if (found.count[i] > 0) continue;
    ROSTAM_THROW(ConfigError, "no wavelength is free on all " << found.num_hops[i] << " segments from accelerator "
                                                              << demand.src[i] << " to accelerator " << demand.dst[i]
                                                              << " of the ring (" << ring.num_wavelengths
                                                              << " wavelengths a fibre); lower the plan's circuit "
                                                                 "degree or raise fabric.accelerator_bandwidth");
  }
  check_ring(demand, ring, found);
  return found;
}

}  // namespace rostam::circuits
