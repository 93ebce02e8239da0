#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "circuits/planner.h"
#include "circuits/relays.h"
#include "circuits/ring_assignment.h"
#include "circuits/ring_wavelengths.h"

namespace rostam::circuits {

namespace {

constexpr int64_t kMaxMeetings = 400000;

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
      change[way.fibre][static_cast<size_t>(way.start)] += num_bytes[pair];
      change[way.fibre][static_cast<size_t>(way.end)] -= num_bytes[pair];
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
    for (int32_t wavelength = 0; wavelength < num_reserved_; ++wavelength) {
      const int32_t fibre = wavelength == 0 ? first : 1 - first;
      for (const int32_t p : pairs[fibre]) reserved_.push_back({p, fibre * ring_.num_wavelengths + wavelength});
    }
    std::sort(reserved_.begin(), reserved_.end());
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
    for (const Circuit& one : held) {
      const int32_t wavelength = wavelength_of(one) - num_reserved_;
      if (wavelength >= 0) now.push_back({one.pair, fibre_of(one) * left + wavelength});
    }
    Setting setting = reserved_;
    for (const Circuit& one : behind_->plan_direct(num_bytes, now)) {
      const int32_t fibre = behind_->fibre_of(one), wavelength = behind_->wavelength_of(one) + num_reserved_;
      setting.push_back({one.pair, fibre * ring_.num_wavelengths + wavelength});
    }
    std::sort(setting.begin(), setting.end());
    return setting;
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
    const size_t num_words = num_wavelength_words(ring_.num_wavelengths);
    std::vector<WavelengthWord> words(pair_of.size() * num_words, 0);
    bool is_any_held = false;
    size_t i = 0;  // of demanded pairs
    for (const Circuit& one : held) {
      while (i < pair_of.size() && pair_of[i] < one.pair) ++i;
      if (i == pair_of.size()) break;
      if (pair_of[i] != one.pair) continue;
      is_any_held = true;
      if (fibre_of(one) != paths[i].fibre) continue;
      const auto w = static_cast<size_t>(wavelength_of(one));
      words[i * num_words + w / kWavelengthsPerWord] |= WavelengthWord{1} << (w % kWavelengthsPerWord);
    }
    if (!is_any_held) words.clear();
    const OneWay found = assign_one_way(demand, ring_, std::move(paths), {seed_, true, true}, words);
    check_one_way(demand, ring_, found);
    Setting setting;
    setting.reserve(static_cast<size_t>(std::accumulate(found.count.begin(), found.count.end(), int64_t{0})));
    for (size_t k = 0; k < pair_of.size(); ++k) {
      const int32_t first = found.paths[k].fibre * ring_.num_wavelengths;
      visit_wavelengths(&found.words[k * num_words], num_words,
                        [&](int32_t wavelength) { setting.push_back({pair_of[k], first + wavelength}); });
    }
    if (found.keeps_names) return setting;
    rename(setting, held);
    sort_channels(setting);
    return setting;
  }

  Setting plan_both_ways(const Demand& demand, const std::vector<int32_t>& pair_of, const Setting& held) const {
    std::vector<RingCircuit> now;
    now.reserve(held.size());
    size_t i = 0;  // of demanded pairs
    for (const Circuit& one : held) {
      while (i < pair_of.size() && pair_of[i] < one.pair) ++i;
      if (i == pair_of.size()) break;
      if (pair_of[i] == one.pair) now.push_back({static_cast<int32_t>(i), fibre_of(one), wavelength_of(one)});
    }
    const RingWavelengths found = set_ring_wavelengths(demand, ring_, seed_, true, now);
    Setting setting;
    setting.reserve(found.circuit_pair.size());
    for (size_t c = 0; c < found.circuit_pair.size(); ++c) {
      setting.push_back({pair_of[found.circuit_pair[c]],
                         found.circuit_fibre[c] * ring_.num_wavelengths + found.circuit_wavelength[c]});
    }
    if (!found.keeps_names) rename(setting, held);
    sort_channels(setting);
    return setting;
  }

  int32_t fibre_of(const Circuit& one) const { return one.channel >= ring_.num_wavelengths; }
  int32_t wavelength_of(const Circuit& one) const {
    return one.channel >= ring_.num_wavelengths ? one.channel - ring_.num_wavelengths : one.channel;
  }

  // Of a setting that is ascending by pair.
  void sort_channels(Setting& setting) const {
    const size_t num_words = num_wavelength_words(kNumFibres * ring_.num_wavelengths);
    std::vector<WavelengthWord> channels(num_words);
    for (size_t first = 0, end = 0; first < setting.size(); first = end) {
      std::fill(channels.begin(), channels.end(), WavelengthWord{0});
      for (; end < setting.size() && setting[end].pair == setting[first].pair; ++end) {
        const auto channel = static_cast<size_t>(setting[end].channel);
        channels[channel / kWavelengthsPerWord] |= WavelengthWord{1} << (channel % kWavelengthsPerWord);
      }
      size_t at = first;
      visit_wavelengths(channels.data(), num_words, [&](int32_t channel) { setting[at++].channel = channel; });
    }
  }

  // Wavelengths are alike: each takes the name, out of all of them, under which most of its circuits are held already,
  // those with most to gain first.
  void rename(Setting& setting, const Setting& held) const {
    const int32_t w = ring_.num_wavelengths;
    std::vector<int32_t> shared(static_cast<size_t>(w) * static_cast<size_t>(w), 0);
    std::vector<size_t> begin(static_cast<size_t>(pairs_.size()) + 1, 0);
    for (const Circuit& one : held) ++begin[static_cast<size_t>(one.pair) + 1];
    for (size_t p = 1; p < begin.size(); ++p) begin[p] += begin[p - 1];
    // Of a pair that has k wavelengths, and keeps about as many, each meets k others: pairs are left out of the sums
    // evenly where these were too many.
    int64_t num_meetings = 0;
    for (const Circuit& one : setting) num_meetings += static_cast<int64_t>(begin[one.pair + 1] - begin[one.pair]);
    const auto every = static_cast<int32_t>(1 + num_meetings / kMaxMeetings);
    for (const Circuit& one : setting) {
      if (one.pair % every != 0) continue;
      for (size_t h = begin[one.pair]; h < begin[static_cast<size_t>(one.pair) + 1]; ++h) {
        if (fibre_of(held[h]) == fibre_of(one)) ++shared[wavelength_of(one) * w + wavelength_of(held[h])];
      }
    }
    // Wavelengths and their names by the circuits kept, most first; as many by wavelength, then by name.
    const int32_t most = *std::max_element(shared.begin(), shared.end());
    std::vector<size_t> first(static_cast<size_t>(most) + 2, 0);
    for (const int32_t kept : shared) ++first[static_cast<size_t>(most - kept) + 1];
    for (size_t k = 1; k < first.size(); ++k) first[k] += first[k - 1];
    const size_t num_gains = first[static_cast<size_t>(most)];  // of one circuit at least
    std::vector<uint32_t> gains(shared.size());
    for (size_t k = 0; k < shared.size(); ++k)
      gains[first[static_cast<size_t>(most - shared[k])]++] = static_cast<uint32_t>(k);
    std::vector<int32_t> name(static_cast<size_t>(w), -1);
    std::vector<uint8_t> is_taken(static_cast<size_t>(w), 0);
    for (size_t k = 0; k < num_gains; ++k) {
      const auto from = static_cast<int32_t>(gains[k]) / w, to = static_cast<int32_t>(gains[k]) % w;
      if (name[from] >= 0 || is_taken[to]) continue;
      name[from] = to;
      is_taken[to] = 1;
    }
    int32_t next = 0;
    for (int32_t& one : name) {
      if (one >= 0) continue;
      while (is_taken[next]) ++next;
      one = next;
      is_taken[next] = 1;
    }
    for (Circuit& one : setting) one.channel = fibre_of(one) * w + name[wavelength_of(one)];
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
