#include "circuits/ring_assignment.h"

#include <algorithm>
#include <array>
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
#include "sim/errors.h"
#include "sim/interrupt.h"

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
// wavelengths) take 4.5 and 7.1 ms on average with 128, 4.4 and 7.3 with 4,096 and 4.7 and 7.4 with none, which then
// leaves it to flows and changes 79 and 85% of the circuits, not 56 and 53%. The slowest pair is as fast with each, and
// with 2 to 32 that fail.
constexpr int32_t kMaxMended = 4096;
constexpr int32_t kMaxMendedSwift = 128, kMaxFailedSwift = 8;
// Each round of filling lifts the ratio by so much.
constexpr double kFillStep = 1.1;

class Assignment {
 public:
  // is_swift: one sweep round the ring goes first, which mostly does; see serve_sweep().
  Assignment(const Demand& demand, const Ring& ring, std::vector<RingPath> paths, uint64_t seed, bool is_swift,
             const std::vector<Word>& held)
      : demand_(demand),
        ring_(ring),
        is_swift_(is_swift),
        held_(held),
        paths_(std::move(paths)),
        rows_(rows_of(demand, ring, paths_)),
        wanted_(count_wavelengths(demand, ring, paths_, seed)),
        got_(paths_.size(), 0) {}

  OneWay run() {
    assign();
    fill();
    return {std::move(paths_), std::move(got_), std::move(wanted_), table_->take_words(), keeps_names_};
  }

 private:
  // A wavelength that few pairs keep another one from using.
  struct Candidate {
    int32_t wavelength = 0;
    size_t num_holders = 0;
    std::array<int32_t, kMaxMoved> holders = {};
  };

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
    const double wanted_ratio = slowest_ratio(wanted_);
    double best_ratio = 0;
    for (int32_t way = first; way < num_ways; ++way) {
      got_.assign(got_.size(), 0);
      table_ = std::make_unique<WavelengthTable>(ring_, paths_, rows_);
      if (way < 0) {
        if (way == kWarm) keep_held();
        serve_sweep();
      } else {
        serve_flows(way);
      }
      mend(way < 0 ? kMaxMendedSwift : kMaxMended, is_swift_ ? kMaxFailedSwift : kMaxMended);
      const double found_ratio = slowest_ratio(got_);
      if (best_table == nullptr || found_ratio > best_ratio) {
        best_ratio = found_ratio;
        best_got = got_;
        best_table = std::move(table_);
        keeps_names_ = way == kWarm;
      }
      if (best_ratio >= wanted_ratio) break;
    }
    got_ = std::move(best_got);
    table_ = std::move(best_table);
  }

  // Leaves pairs what they have of their least counts: on the fibre that is swept from the top the highest ones.
  void keep_held() {
    for (size_t i = 0; i < got_.size(); ++i) {
      const Word* const own = &held_[i * table_->num_words()];
      got_[i] += table_->give_all_of(static_cast<int32_t>(i), wanted_[i], paths_[i].fibre == 1, own);
    }
  }

  // Gives each pair its least count at once, in the order of travel from where the fibre carries least: the lowest free
  // wavelengths on one fibre, and the highest on the other, so that what accelerators drive, or receive, on both seldom
  // meets. On a line the lowest free ones always suffice; here what goes past the beginning may be left short.
  // Cost: O(P x hops x W / 64).
  void serve_sweep() {
    for (int32_t fibre = 0; fibre < kNumFibres; ++fibre) {
      for (const int32_t pair : in_order_of_travel(fibre)) {
        poll_interrupt();
        const size_t i = static_cast<size_t>(pair);
        got_[i] += table_->give_free(pair, wanted_[i] - got_[i], fibre == 1);
      }
    }
  }

  // A fibre's pairs by where they begin, from the place that it carries least at; what goes past that comes first.
  std::vector<int32_t> in_order_of_travel(int32_t fibre) const {
    const size_t n = static_cast<size_t>(ring_.num_accelerators);
    std::vector<int64_t> load(2 * n + 1, 0);  // of each place in two rounds; then of one
    for (size_t i = 0; i < paths_.size(); ++i) {
      if (paths_[i].fibre != fibre) continue;
      load[static_cast<size_t>(paths_[i].start)] += wanted_[i];
      load[static_cast<size_t>(paths_[i].end)] -= wanted_[i];
    }
    std::partial_sum(load.begin(), load.end(), load.begin());
    for (size_t p = 0; p < n; ++p) load[p] += load[p + n];
    const auto least = std::min_element(load.begin(), load.begin() + ring_.num_accelerators);
    const auto origin = static_cast<int32_t>(least - load.begin());
    const auto rank = [&](const RingPath& path) {
      const int32_t start = (path.start < origin ? path.start + ring_.num_accelerators : path.start) - origin;
      const bool goes_past = start + path.num_hops() > ring_.num_accelerators;
      return static_cast<size_t>(goes_past ? start : start + ring_.num_accelerators);
    };
    std::vector<int32_t> begin(2 * n + 1, 0);
    for (const RingPath& path : paths_) begin[rank(path) + 1] += path.fibre == fibre;
    std::partial_sum(begin.begin(), begin.end(), begin.begin());
    std::vector<int32_t> order(static_cast<size_t>(begin.back()));
    for (size_t i = 0; i < paths_.size(); ++i) {
      if (paths_[i].fibre != fibre) continue;
      order[static_cast<size_t>(begin[rank(paths_[i])]++)] = static_cast<int32_t>(i);
    }
    return order;
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
    std::vector<Word> words(wanted_.size(), 0);  // of each pair, the wavelengths of the word that is served
    for (int32_t w = 0; w < ring_.num_wavelengths; ++w) {
      poll_interrupt();
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
      for (const int32_t pair : served) words[static_cast<size_t>(pair)] |= bit_of(w);
      if ((w + 1) % kWordBits != 0 && w + 1 < ring_.num_wavelengths) continue;
      for (size_t i = 0; i < words.size(); ++i)
        got_[i] += table_->give_word(static_cast<int32_t>(i), static_cast<size_t>(w / kWordBits), words[i]);
      std::fill(words.begin(), words.end(), Word{0});
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

  // Gives free wavelengths in rounds, each lifting the ratio that pairs are to reach: slow pairs take theirs first,
  // what they held if that is free. Nothing is taken back, so a pair may find more until it has looked through all
  // words.
  void fill() {
    const size_t num_words = table_->num_words();
    steps_.assign(got_.size(), keeps_names_ ? 0 : num_words);
    std::vector<int32_t> open(got_.size()), slow(got_.size());
    std::iota(open.begin(), open.end(), 0);
    double level = std::numeric_limits<double>::infinity();
    for (const int32_t pair : open) level = std::min(level, ratio(pair, std::max(1, got_[static_cast<size_t>(pair)])));
    for (; !open.empty(); level *= kFillStep) {
      // Both lists without branches, which would go either way. Only its own lift changes whether a pair is slow.
      size_t num_open = 0, num_slow = 0;
      for (const int32_t pair : open) {
        const auto i = static_cast<size_t>(pair);
        const bool is_open = steps_[i] < 2 * num_words;
        open[num_open] = slow[num_slow] = pair;
        num_open += is_open;
        num_slow += is_open & (level * demand_.num_bytes[i] > got_[i]);
      }
      open.resize(num_open);
      for (size_t k = 0; k < num_slow; ++k) lift(slow[k], level);
    }
  }

  void lift(int32_t pair, double level) {
    poll_interrupt();
    const size_t i = static_cast<size_t>(pair);
    const double more = std::min(level * demand_.num_bytes[i], ring_.num_wavelengths + 1.0) - got_[i];
    const auto whole = static_cast<int32_t>(more);
    const Word* const held = keeps_names_ ? &held_[i * table_->num_words()] : nullptr;
    got_[i] += table_->give_free_from(pair, whole + (whole < more), paths_[i].fibre == 1, held, steps_[i]);
  }

  // Makes room for `pair` on some wavelength: those that hold it there move to others that are free, or give it up
  // where they stay faster than `pair` is. Returns whether it could.
  bool make_room(int32_t pair) {
    poll_interrupt();
    const double own = ratio(pair, got_[static_cast<size_t>(pair)]);
    is_movable_.resize(got_.size());
    asked_.resize(got_.size());
    ++num_asked_;
    candidates_.clear();
    for (int32_t w = 0; w < ring_.num_wavelengths; ++w) {
      table_->holders(pair, w, kMaxMoved, holders_);
      if (holders_.size() > kMaxMoved) continue;
      if (may_move(own, false) && displace(pair, w, false)) return true;
      Candidate one{w, holders_.size(), {}};
      std::copy(holders_.begin(), holders_.end(), one.holders.begin());
      candidates_.push_back(one);
    }
    for (const Candidate& one : candidates_) {
      holders_.assign(one.holders.begin(), one.holders.begin() + static_cast<std::ptrdiff_t>(one.num_holders));
      if (may_move(own, true) && displace(pair, one.wavelength, true)) return true;
    }
    return false;
  }

  // False where one of the holders would find no other wavelength free, nor may give this one up. What is free for a
  // pair is as it was when it was first asked for: failing to make room changes nothing.
  bool may_move(double own, bool may_give_up) {
    return std::all_of(holders_.begin(), holders_.end(), [&](int32_t other) {
      const auto i = static_cast<size_t>(other);
      if (std::exchange(asked_[i], num_asked_) != num_asked_)
        is_movable_[i] = table_->first_free(other) != WavelengthTable::kNobody;
      return is_movable_[i] != 0 || (may_give_up && ratio(other, got_[i] - 1) > own);
    });
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

  const Demand& demand_;
  const Ring& ring_;
  bool is_swift_;
  const std::vector<Word>& held_;
  std::vector<RingPath> paths_;
  std::vector<WavelengthRows> rows_;
  std::vector<int32_t> wanted_;
  std::vector<int32_t> got_;
  std::unique_ptr<WavelengthTable> table_;
  std::vector<Candidate> candidates_;
  std::vector<uint8_t> is_movable_;  // of each pair: whether it has another wavelength free, as of when
  std::vector<int64_t> asked_;       // that was asked for
  int64_t num_asked_ = 0;
  std::vector<size_t> steps_;  // of filling, of each pair: see WavelengthTable::give_free_from
  std::vector<int32_t> holders_;
  bool keeps_names_ = false;
};

// Segments, drivers and receivers of one of these circuits a pair, as far as they find one free, in this order.
std::vector<size_t> admit_in_order(const Demand& demand, const Ring& ring, const std::vector<RingPath>& paths,
                                   const std::vector<size_t>& order) {
  const auto n = static_cast<size_t>(ring.num_accelerators);
  std::vector<int32_t> load(4 * n, 0);
  std::vector<size_t> admitted;
  for (const size_t i : order) {
    const WavelengthRows rows(paths[i], demand.src[i], demand.dst[i], ring.num_accelerators);
    bool is_free = true;
    rows.visit([&](int32_t row) { is_free = is_free && load[row] < ring.num_wavelengths; });
    if (!is_free) continue;
    rows.visit([&](int32_t row) { ++load[row]; });
    admitted.push_back(i);
  }
  std::sort(admitted.begin(), admitted.end());
  return admitted;
}

// Pairs that find a wavelength each, the largest demands first; ascending. REQUIRES: not all do.
std::vector<size_t> admit(const Demand& demand, const Ring& ring, const std::vector<RingPath>& paths) {
  std::vector<size_t> order(paths.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t i, size_t j) { return demand.num_bytes[i] > demand.num_bytes[j]; });
  return admit_in_order(demand, ring, paths, order);
}

// The same for all pairs of a demand, of which only some were served.
OneWay among_all(const OneWay& found, const std::vector<size_t>& served, std::vector<RingPath> paths,
                 size_t num_words) {
  OneWay all;
  all.count.assign(paths.size(), 0);
  all.target.assign(paths.size(), 0);
  all.words.assign(paths.size() * num_words, 0);
  for (size_t k = 0; k < served.size(); ++k) {
    all.count[served[k]] = found.count[k];
    all.target[served[k]] = found.target[k];
    std::copy_n(&found.words[k * num_words], num_words, &all.words[served[k] * num_words]);
  }
  all.paths = std::move(paths);
  all.keeps_names = found.keeps_names;
  return all;
}

}  // namespace

OneWay assign_one_way(const Demand& demand, const Ring& ring, std::vector<RingPath> paths, const OneWayOptions& options,
                      const std::vector<Word>& held) {
  if (!options.may_leave_out || can_all_have_one(demand, ring, paths))
    return Assignment(demand, ring, std::move(paths), options.seed, options.is_swift, held).run();
  const std::vector<size_t> admitted = admit(demand, ring, paths);
  const size_t num_words = num_words_of(ring.num_wavelengths);
  Demand fitting;
  fitting.num_accelerators = demand.num_accelerators;
  std::vector<RingPath> fitting_paths;
  std::vector<Word> fitting_held;
  for (const size_t i : admitted) {
    fitting.src.push_back(demand.src[i]);
    fitting.dst.push_back(demand.dst[i]);
    fitting.num_bytes.push_back(demand.num_bytes[i]);
    fitting_paths.push_back(paths[i]);
    if (held.empty()) continue;
    const auto own = held.begin() + static_cast<std::ptrdiff_t>(i * num_words);
    fitting_held.insert(fitting_held.end(), own, own + static_cast<std::ptrdiff_t>(num_words));
  }
  Assignment assignment(fitting, ring, std::move(fitting_paths), options.seed, options.is_swift, fitting_held);
  return among_all(assignment.run(), admitted, std::move(paths), num_words);
}

void check_one_way(const Demand& demand, const Ring& ring, const OneWay& found) {
  const size_t num_words = num_words_of(ring.num_wavelengths);
  const size_t num_rows = 4 * static_cast<size_t>(ring.num_accelerators);
  std::vector<Word> used(num_rows * num_words, 0);
  for (size_t i = 0; i < found.paths.size(); ++i) {
    const RingPath& path = found.paths[i];
    const WavelengthRows rows(path, demand.src[i], demand.dst[i], ring.num_accelerators);
    Word twice = 0;
    const Word* const own = &found.words[i * num_words];
    rows.visit([&](int32_t row) {
      Word* const taken = &used[static_cast<size_t>(row) * num_words];
      for (size_t word = 0; word < num_words; ++word) {
        twice |= taken[word] & own[word];
        taken[word] |= own[word];
      }
    });
    ROSTAM_CHECK(twice == 0, "pair " << i << " has a wavelength used already");
    ROSTAM_CHECK(path.num_hops() <= ring.reach, "pair " << i << " is " << path.num_hops() << " hops long");
    const bool is_way = accelerator_at(path.start, path.fibre, ring.num_accelerators) == demand.src[i] &&
                        accelerator_at(path.end, path.fibre, ring.num_accelerators) == demand.dst[i];
    ROSTAM_CHECK(is_way, "pair " << i << " goes another way");
  }
}

}  // namespace rostam::circuits
