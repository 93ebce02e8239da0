#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "circuits/planner.h"
#include "circuits/relays.h"
#include "circuits/ring_assignment.h"
#include "circuits/ring_names.h"
#include "circuits/ring_wavelengths.h"

namespace rostam::circuits {

namespace {

class RingPlanner : public CircuitPlanner {
 public:
  RingPlanner(PairList pairs, Ring ring, uint64_t seed, bool can_relay)
      : pairs_(std::move(pairs)), ring_(std::move(ring)), seed_(seed), can_relay_(can_relay) {
    const Demand all = {pairs_.num_accelerators, pairs_.src, pairs_.dst,
                        std::vector<double>(static_cast<size_t>(pairs_.size()), 1)};
    ways_ = open_ways(all, ring_, true);
    for (int32_t p = 0; p < pairs_.size(); ++p) {
      if (ways_[p].size() == 1) single_ways_.emplace_back(p, ways_[p].front());
    }
    if (!can_relay_) return;
    std::vector<int32_t> has_way;
    for (const auto& ways : ways_) has_way.push_back(!ways.empty());
    RelayPaths paths(pairs_, has_way);
    for (int32_t p = 0; p < pairs_.size(); ++p)
      relays_.push_back(has_way[p] != 0 ? std::vector<RelayHop>() : paths.find(p).hops);
    for (const int32_t p : ring_pairs(pairs_, true)) {
      if (has_way[p] != 0) round_.push_back(p);
    }
    set_round();
  }

  Setting plan(const std::vector<double>& num_bytes, const Setting& held) const override {
    if (!can_relay_) return plan_direct(num_bytes, held);
    std::vector<double> over_hops = num_bytes;
    for (size_t p = 0; p < ways_.size(); ++p) {
      if (!ways_[p].empty()) continue;
      over_hops[p] = 0;
      for (const RelayHop& hop : relays_[p]) over_hops[hop.pair] += hop.share * num_bytes[p];
    }
    Setting setting = plan_direct(over_hops, held);
    if (reaches_all(pairs_, num_bytes, setting)) return setting;
    const double most = *std::max_element(over_hops.begin(), over_hops.end());
    for (const int32_t p : round_) over_hops[p] = std::max(most, over_hops[p]);
    Setting joined = plan_direct(over_hops, held);
    if (reaches_all(pairs_, num_bytes, joined)) return joined;
    joined = plan_behind_round(over_hops, held);
    return reaches_all(pairs_, num_bytes, joined) ? joined : setting;
  }

  // By accelerators' ends, and by the segments that pairs with a single way must cross.
  double most_ratio(const std::vector<double>& num_bytes) const override {
    const auto n = static_cast<size_t>(ring_.num_accelerators);
    double most = busiest_end(pairs_, num_bytes);
    std::vector<double> change[kNumFibres];
    for (auto& of_fibre : change) of_fibre.assign(2 * n + 1, 0);
    for (const auto& [pair, way] : single_ways_) {
      double* const of_fibre = change[way.fibre].data();
      of_fibre[way.start] += num_bytes[pair];
      of_fibre[way.end] -= num_bytes[pair];
    }
    for (auto& of_fibre : change) {
      for (size_t place = 1; place < of_fibre.size(); ++place) of_fibre[place] += of_fibre[place - 1];
      for (size_t place = 0; place < n; ++place) most = std::max(most, of_fibre[place] + of_fibre[place + n]);
    }
    return ring_.num_wavelengths / most;
  }

 private:
  // Neighbours' circuits on wavelengths of their own: the first is of all on one fibre, so that it joins them unless
  // that is cut, the second of all on the other.
  void set_round() {
    const std::vector<int32_t> forth = ring_pairs(pairs_, false);
    std::vector<RingPath> ways[kNumFibres];
    std::vector<int32_t> pairs[kNumFibres];
    for (const int32_t p : round_) {
      const int32_t fibre = std::binary_search(forth.begin(), forth.end(), p) ? 0 : 1;
      for (const RingPath& way : ways_[p]) {
        if (way.fibre != fibre) continue;
        pairs[fibre].push_back(p);
        ways[fibre].push_back(way);
      }
    }
    const int32_t first = pairs[1].size() > pairs[0].size() ? 1 : 0;
    num_reserved_ = std::min<int32_t>(kNumFibres, ring_.num_wavelengths);
    std::vector<Circuit> reserved;
    for (int32_t wavelength = 0; wavelength < num_reserved_; ++wavelength) {
      const int32_t fibre = wavelength == 0 ? first : 1 - first;
      for (const int32_t p : pairs[fibre]) reserved.push_back({p, fibre * ring_.num_wavelengths + wavelength});
    }
    reserved_ = Setting(std::move(reserved));
    if (ring_.num_wavelengths == num_reserved_) return;
    Ring left = ring_;
    left.num_wavelengths -= num_reserved_;
    behind_ = std::make_unique<RingPlanner>(pairs_, left, seed_, false);
  }

  // Neighbours first, on their own wavelengths, all demands on the others.
  Setting plan_behind_round(const std::vector<double>& num_bytes, const Setting& held) const {
    if (behind_ == nullptr) return reserved_;
    const int32_t left = ring_.num_wavelengths - num_reserved_;
    Setting now;
    for (const Circuit one : held) {
      const int32_t wavelength = wavelength_of(one) - num_reserved_;
      if (wavelength >= 0) now.add(Circuit{one.pair, fibre_of(one) * left + wavelength});
    }
    Setting others;
    const Setting behind = behind_->plan_direct(num_bytes, now);
    for (const Circuit one : behind) {
      const int32_t fibre = behind_->fibre_of(one), wavelength = behind_->wavelength_of(one) + num_reserved_;
      others.add(Circuit{one.pair, fibre * ring_.num_wavelengths + wavelength});
    }
    return together(reserved_, others);
  }

  // The same without relays.
  Setting plan_direct(const std::vector<double>& num_bytes, const Setting& held) const {
    Demand demand;
    demand.num_accelerators = pairs_.num_accelerators;
    std::vector<int32_t> pair_of;
    for (int32_t p = 0; p < pairs_.size(); ++p) {
      if (num_bytes[p] <= 0) continue;
      pair_of.push_back(p);
      demand.src.push_back(pairs_.src[p]);
      demand.dst.push_back(pairs_.dst[p]);
      demand.num_bytes.push_back(num_bytes[p]);
    }
    if (pair_of.empty()) return {};
    const bool has_choice =
        std::any_of(pair_of.begin(), pair_of.end(), [this](int32_t p) { return ways_[p].size() != 1; });
    return has_choice ? plan_both_ways(demand, pair_of, held) : plan_one_way(demand, pair_of, held);
  }

  // Where light survives one way round alone, wavelengths are rows of bits from what is held to what is set.
  Setting plan_one_way(const Demand& demand, const std::vector<int32_t>& pair_of, const Setting& held) const {
    std::vector<RingPath> paths;
    paths.reserve(pair_of.size());
    for (const int32_t p : pair_of) paths.push_back(ways_[p].front());
    const int32_t w = ring_.num_wavelengths;
    const size_t num_words = num_words_of(w);
    std::vector<Word> words(pair_of.size() * num_words, 0);
    bool is_any_held = false;
    PairBlocks now(held);
    for (size_t i = 0; i < pair_of.size(); ++i) {
      if (!now.find(pair_of[i])) continue;
      is_any_held = true;
      now.read_row(paths[i].fibre * w, w, &words[i * num_words]);
    }
    if (!is_any_held) words.clear();
    OneWay found = assign_one_way(demand, ring_, std::move(paths), {seed_, true, true}, words);
    check_one_way(demand, ring_, found);
    if (!found.keeps_names && is_any_held) rename(w, best_names(w, {pair_of, found.words, words}), found.words);
    Setting setting;
    setting.reserve(found.words.size());
    for (size_t i = 0; i < pair_of.size(); ++i)
      setting.add_row(pair_of[i], found.paths[i].fibre * w, &found.words[i * num_words], num_words);
    return setting;
  }

  Setting plan_both_ways(const Demand& demand, const std::vector<int32_t>& pair_of, const Setting& held) const {
    std::vector<RingCircuit> now;
    now.reserve(static_cast<size_t>(held.size()));
    size_t i = 0;  // of demanded pairs
    for (const Circuit one : held) {
      while (i < pair_of.size() && pair_of[i] < one.pair) ++i;
      if (i == pair_of.size()) break;
      if (pair_of[i] == one.pair) now.push_back({static_cast<int32_t>(i), fibre_of(one), wavelength_of(one)});
    }
    const RingWavelengths found = set_ring_wavelengths(demand, ring_, seed_, true, now);
    // A row of each fibre for each pair.
    const int32_t w = ring_.num_wavelengths;
    const size_t num_words = num_words_of(w);
    std::vector<int32_t> pair_of_row;
    std::vector<Word> rows(kNumFibres * pair_of.size() * num_words, 0), held_rows(rows.size(), 0);
    for (size_t c = 0; c < found.circuit_pair.size(); ++c) {
      const auto row = static_cast<size_t>(kNumFibres * found.circuit_pair[c] + found.circuit_fibre[c]);
      const int32_t wavelength = found.circuit_wavelength[c];
      rows[row * num_words + static_cast<size_t>(wavelength / kWordBits)] |= bit_of(wavelength);
    }
    for (const RingCircuit& one : now) {
      const auto row = static_cast<size_t>(kNumFibres * one.pair + one.fibre);
      held_rows[row * num_words + static_cast<size_t>(one.wavelength / kWordBits)] |= bit_of(one.wavelength);
    }
    for (const int32_t pair : pair_of) pair_of_row.insert(pair_of_row.end(), kNumFibres, pair);
    if (!found.keeps_names) rename(w, best_names(w, {pair_of_row, rows, held_rows}), rows);
    Setting setting;
    for (size_t r = 0; r < pair_of_row.size(); ++r) {
      const auto fibre = static_cast<int32_t>(r % kNumFibres);
      setting.add_row(pair_of_row[r], fibre * w, &rows[r * num_words], num_words);
    }
    return setting;
  }

  int32_t fibre_of(const Circuit& one) const { return one.channel >= ring_.num_wavelengths; }
  int32_t wavelength_of(const Circuit& one) const {
    return one.channel >= ring_.num_wavelengths ? one.channel - ring_.num_wavelengths : one.channel;
  }

  PairList pairs_;
  Ring ring_;
  uint64_t seed_;
  bool can_relay_;
  std::vector<std::vector<RingPath>> ways_;  // of each pair
  std::vector<std::pair<int32_t, RingPath>> single_ways_;
  std::vector<std::vector<RelayHop>> relays_;  // of each pair without a way
  std::vector<int32_t> round_;                 // the pairs of a ring, both ways
  Setting reserved_;                           // their circuits where these have wavelengths of their own
  int32_t num_reserved_ = 0;                   // these wavelengths
  std::unique_ptr<RingPlanner> behind_;        // with the others; null without any
};

}  // namespace

std::unique_ptr<CircuitPlanner> make_ring_planner(PairList pairs, const Ring& ring, uint64_t seed, bool can_relay) {
  return std::make_unique<RingPlanner>(std::move(pairs), ring, seed, can_relay);
}

}  // namespace rostam::circuits
