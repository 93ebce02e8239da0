#include "circuits/ring_counts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

#include "sim/errors.h"
#include "sim/interrupt.h"
#include "sim/random.h"

namespace rostam::circuits {

namespace {

// Halvings of the range of ratios before single steps take over.
constexpr int32_t kBisections = 5;
// Of the bound on ratios that the range begins with, if that fits.
constexpr double kFirstShare = 0.75;
// Of ratios.
constexpr double kRounding = 1e-9;

class Counter {
 public:
  Counter(const Demand& demand, const Ring& ring, const std::vector<RingPath>& paths)
      : demand_(demand), n_(ring.num_accelerators), room_(ring.num_wavelengths), paths_(paths) {
    counts_.assign(paths.size(), 1);
    for (auto& load : segments_) load.assign(static_cast<size_t>(n_), 0);
  }

  bool can_all_have_one() {
    load_with([](size_t) { return 1; });
    return fits();
  }

  std::vector<int32_t> run(uint64_t seed) {
    load_with([](size_t) { return 1; });
    check_one_each();
    raise_all();
    widen(seed);
    return std::move(counts_);
  }

 private:
  // count_of(i): wavelengths of pair i.
  template <typename CountOf>
  void load_with(CountOf count_of) {
    const size_t n = static_cast<size_t>(n_);
    sends_.assign(n, 0);
    receives_.assign(n, 0);
    for (auto& load : segments_) load.assign(2 * n + 1, 0);  // of two rounds, then of one
    for (size_t i = 0; i < paths_.size(); ++i) {
      const RingPath& path = paths_[i];
      const int32_t count = count_of(i);
      std::vector<int32_t>& load = segments_[path.fibre];
      load[static_cast<size_t>(path.start)] += count;
      load[static_cast<size_t>(path.end)] -= count;
      sends_[static_cast<size_t>(demand_.src[i])] += count;
      receives_[static_cast<size_t>(demand_.dst[i])] += count;
    }
    for (auto& load : segments_) {
      for (size_t p = 1; p < 2 * n; ++p) load[p] += load[p - 1];
      for (size_t p = 0; p < n; ++p) load[p] += load[p + n];
      load.resize(n);
    }
  }

  bool fits() const {
    const auto is_full = [this](int32_t load) { return load > room_; };
    for (const auto& load : segments_) {
      if (std::any_of(load.begin(), load.end(), is_full)) return false;
    }
    return std::none_of(sends_.begin(), sends_.end(), is_full) &&
           std::none_of(receives_.begin(), receives_.end(), is_full);
  }

  void check_one_each() const {
    for (int32_t fibre = 0; fibre < kNumFibres; ++fibre) {
      for (int32_t p = 0; p < n_; ++p) {
        const int32_t load = segments_[fibre][static_cast<size_t>(p)];
        if (load <= room_) continue;
        ROSTAM_THROW(ConfigError, load << " demanded pairs cross the ring's segment from accelerator "
                                       << accelerator_at(p, fibre, n_) << " to " << accelerator_at(p + 1, fibre, n_)
                                       << ", which has " << room_ << " wavelengths; every pair needs one of its own");
      }
    }
    for (int32_t a = 0; a < n_; ++a) {
      const int32_t sent = sends_[static_cast<size_t>(a)];
      const int32_t peers = std::max(sent, receives_[static_cast<size_t>(a)]);
      if (peers <= room_) continue;
      ROSTAM_THROW(ConfigError, "accelerator " << a << (peers == sent ? " sends to " : " receives from ") << peers
                                               << " peers over " << room_
                                               << " wavelengths; every pair needs one of its own");
    }
  }

  int32_t count_at(double ratio, size_t pair) const {
    const double wanted = std::min(ratio * demand_.num_bytes[pair], room_ + 1.0);
    const auto whole = static_cast<int32_t>(wanted);
    return std::max(1, whole + (whole < wanted));
  }

  // What no ratio exceeds: W over the bytes of the fullest limit.
  double most_ratio() const {
    const size_t n = static_cast<size_t>(n_);
    std::vector<double> ends(2 * n, 0);
    std::vector<double> segments[kNumFibres];
    for (auto& load : segments) load.assign(2 * n + 1, 0);  // of two rounds, then of one
    for (size_t i = 0; i < paths_.size(); ++i) {
      const double num_bytes = demand_.num_bytes[i];
      segments[paths_[i].fibre][static_cast<size_t>(paths_[i].start)] += num_bytes;
      segments[paths_[i].fibre][static_cast<size_t>(paths_[i].end)] -= num_bytes;
      ends[static_cast<size_t>(demand_.src[i])] += num_bytes;
      ends[n + static_cast<size_t>(demand_.dst[i])] += num_bytes;
    }
    double most = *std::max_element(ends.begin(), ends.end());
    for (auto& load : segments) {
      for (size_t p = 1; p < 2 * n; ++p) load[p] += load[p - 1];
      for (size_t p = 0; p < n; ++p) most = std::max(most, load[p] + load[p + n]);
    }
    return room_ / most;
  }

  // Raises all pairs to a common ratio just below the largest one that fits, which is seldom far below the bound.
  void raise_all() {
    if (paths_.empty()) return;
    double most = most_ratio();
    double least = kFirstShare * most;
    load_with([&](size_t i) { return count_at(least, i); });
    if (!fits()) most = std::exchange(least, 0.0);
    for (int32_t step = 0; step < kBisections; ++step) {
      poll_interrupt();
      const double middle = (least + most) / 2;
      load_with([&](size_t i) { return count_at(middle, i); });
      (fits() ? least : most) = middle;
    }
    too_much_ = most * (1 + kRounding);
    for (size_t i = 0; i < counts_.size(); ++i) counts_[i] = count_at(least, i);
    load_with([this](size_t i) { return counts_[i]; });
  }

  bool has_room(size_t pair) const {
    const RingPath& path = paths_[pair];
    if (sends_[static_cast<size_t>(demand_.src[pair])] >= room_) return false;
    if (receives_[static_cast<size_t>(demand_.dst[pair])] >= room_) return false;
    const std::vector<int32_t>& load = segments_[path.fibre];
    for (int32_t p = path.start; p < path.end; ++p) {
      if (load[static_cast<size_t>(p < n_ ? p : p - n_)] >= room_) return false;
    }
    return true;
  }

  // Gives wavelengths one by one to the slowest pair, up to the first pair that finds no room.
  void widen(uint64_t seed) {
    struct Entry {
      double ratio;
      uint64_t draw;
      size_t pair;
      bool operator>(const Entry& other) const {
        return ratio != other.ratio ? ratio > other.ratio : draw > other.draw;
      }
    };
    std::vector<Entry> entries;
    const auto entry = [&](size_t i) { return Entry{counts_[i] / demand_.num_bytes[i], mix(mix(seed) + i), i}; };
    // A pair that is faster than the ratio that does not fit has its turn after one that finds no room.
    for (size_t i = 0; i < paths_.size(); ++i) {
      if (counts_[i] <= too_much_ * demand_.num_bytes[i]) entries.push_back(entry(i));
    }
    std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> slowest(std::greater<Entry>(),
                                                                                std::move(entries));
    InterruptPoll poll;
    while (!slowest.empty()) {
      poll();
      const size_t i = slowest.top().pair;
      slowest.pop();
      if (!has_room(i)) return;
      const RingPath& path = paths_[i];
      ++counts_[i];
      ++sends_[static_cast<size_t>(demand_.src[i])];
      ++receives_[static_cast<size_t>(demand_.dst[i])];
      for (int32_t p = path.start; p < path.end; ++p) {
        ++segments_[path.fibre][static_cast<size_t>(p < n_ ? p : p - n_)];
      }
      slowest.push(entry(i));
    }
  }

  const Demand& demand_;
  int32_t n_;
  int32_t room_;  // W
  const std::vector<RingPath>& paths_;
  std::vector<int32_t> counts_;
  std::vector<int32_t> segments_[kNumFibres];  // wavelengths on every segment, by place
  double too_much_ = 0;                        // a ratio that does not fit
  std::vector<int32_t> sends_;
  std::vector<int32_t> receives_;
};

}  // namespace

bool can_all_have_one(const Demand& demand, const Ring& ring, const std::vector<RingPath>& paths) {
  return Counter(demand, ring, paths).can_all_have_one();
}

std::vector<int32_t> count_wavelengths(const Demand& demand, const Ring& ring, const std::vector<RingPath>& paths,
                                       uint64_t seed) {
  return Counter(demand, ring, paths).run(seed);
}

}  // namespace rostam::circuits
