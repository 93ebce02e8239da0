#include "circuits/ring_counts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

#include "sim/errors.h"
#include "sim/random.h"

namespace rostam::circuits {

namespace {

// Halvings of the range of ratios before single steps take over.
constexpr int32_t kBisections = 12;

class Counter {
 public:
  Counter(const Demand& demand, const Ring& ring, const std::vector<RingPath>& paths)
      : demand_(demand), n_(ring.num_accelerators), room_(ring.num_wavelengths), paths_(paths) {
    counts_.assign(paths.size(), 1);
    for (auto& load : segments_) load.assign(static_cast<size_t>(n_), 0);
  }

  std::vector<int32_t> run(uint64_t seed) {
    load_with(counts_);
    check_one_each();
    raise_all();
    widen(seed);
    return std::move(counts_);
  }

 private:
  void load_with(const std::vector<int32_t>& counts) {
    const size_t n = static_cast<size_t>(n_);
    sends_.assign(n, 0);
    receives_.assign(n, 0);
    for (auto& load : segments_) std::fill(load.begin(), load.end(), 0);
    for (size_t i = 0; i < paths_.size(); ++i) {
      const RingPath& path = paths_[i];
      std::vector<int32_t>& load = segments_[path.fibre];
      load[static_cast<size_t>(path.start)] += counts[i];
      load[static_cast<size_t>(path.end % n_)] -= counts[i];
      if (path.end >= n_) load[0] += counts[i];
      sends_[static_cast<size_t>(demand_.src[i])] += counts[i];
      receives_[static_cast<size_t>(demand_.dst[i])] += counts[i];
    }
    // A path that ends at place N = 0 covers nothing of the next round.
    for (auto& load : segments_) {
      for (size_t p = 1; p < n; ++p) load[p] += load[p - 1];
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

  std::vector<int32_t> counts_at(double ratio) const {
    std::vector<int32_t> counts = counts_;
    for (size_t i = 0; i < counts.size(); ++i) {
      const double wanted = std::min(std::ceil(ratio * demand_.num_bytes[i]), room_ + 1.0);
      counts[i] = std::max(counts[i], static_cast<int32_t>(wanted));
    }
    return counts;
  }

  // Raises all pairs to a common ratio just below the largest one that fits.
  void raise_all() {
    double least = 0;
    double most = std::numeric_limits<double>::infinity();
    for (const double num_bytes : demand_.num_bytes) most = std::min(most, room_ / num_bytes);
    for (int32_t step = 0; step < kBisections && !paths_.empty(); ++step) {
      const double middle = (least + most) / 2;
      load_with(counts_at(middle));
      (fits() ? least : most) = middle;
    }
    counts_ = counts_at(least);
    load_with(counts_);
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
    for (size_t i = 0; i < paths_.size(); ++i) entries.push_back(entry(i));
    std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> slowest(std::greater<Entry>(),
                                                                                std::move(entries));
    while (!slowest.empty()) {
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
  std::vector<int32_t> sends_;
  std::vector<int32_t> receives_;
};

}  // namespace

std::vector<int32_t> count_wavelengths(const Demand& demand, const Ring& ring, const std::vector<RingPath>& paths,
                                       uint64_t seed) {
  return Counter(demand, ring, paths).run(seed);
}

}  // namespace rostam::circuits
