// link_load: what the busiest links have carried, read again and again; nothing is changed by it.
// Readings begin a microsecond apart. Where they become too many every other one is dropped and the time between them
// doubles; those where iterations end stay. While nothing moves none is taken: the next message, phase or iteration
// begins again with them, so that a run in which nothing can happen any more still ends.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "control/registry.h"

namespace rostam::control {

namespace {

constexpr int64_t kFirstPeriodPs = 1000000;
constexpr size_t kMaxReadings = 2048, kMinReadings = 64;
constexpr size_t kMaxValues = size_t{1} << 23;  // of all readings: 64 MiB
constexpr double kAlike = 1e-9;                 // relative difference of links that carry the same

class LinkLoad : public Controller {
 public:
  // bytes_per_s: of every link, to rank them by. num_links: at most so many are reported.
  LinkLoad(std::vector<double> bytes_per_s, int64_t num_links)
      : bytes_per_s_(std::move(bytes_per_s)), num_links_(num_links), period_(SimTime::from_ps(kFirstPeriodPs)) {
    const size_t most = kMaxValues / std::max<size_t>(1, bytes_per_s_.size());
    max_readings_ = std::min(kMaxReadings, std::max(kMinReadings, most));
  }

  void begin(ControlPlane& plane) override { wake_after_period(plane); }

  void wake(ControlPlane& plane) override {
    is_awake_ = false;
    if (read(plane)) wake_after_period(plane);
  }

  void on(const Event& event, ControlPlane& plane) override {
    if (!is_awake_ || event.kind == kIterationEnd) read(plane, event.kind == kIterationEnd);
    if (!is_awake_) wake_after_period(plane);
  }

  uint32_t subscriptions() const override { return kFlowStart | kIterationEnd | kPhaseStart | kPhaseEnd; }
  folding::Footprint footprint() const override { return {}; }

  workload::Report report(SimTime /*now*/) const override {
    std::vector<int64_t> times, chosen, num_alike;
    for (const Reading& one : readings_) times.push_back(one.time.ps());
    choose(chosen, num_alike);
    std::vector<double> loads;  // of the first link at all times, then of the second
    for (const int64_t link : chosen) {
      for (const Reading& one : readings_) loads.push_back(one.bytes[static_cast<size_t>(link)]);
    }
    return {{"time_ps", times}, {"link", chosen}, {"num_alike", num_alike}, {"bytes", loads}};
  }

 private:
  struct Reading {
    SimTime time;
    bool is_border;             // an iteration ends: it stays
    std::vector<double> bytes;  // up to then, of every link
  };

  void wake_after_period(ControlPlane& plane) {
    is_awake_ = true;
    plane.wake_at(plane.now() + period_);
  }

  // Returns whether anything has moved since the last reading.
  bool read(ControlPlane& plane, bool is_border = false) {
    if (!readings_.empty() && readings_.back().time == plane.now()) {
      readings_.back().is_border |= is_border;
      return true;
    }
    std::vector<double> bytes = plane.link_loads();
    bytes.resize(bytes_per_s_.size());  // not of links that were added
    const bool has_moved = readings_.empty() || bytes != readings_.back().bytes;
    readings_.push_back({plane.now(), is_border, std::move(bytes)});
    // Of readings without any change the first and the last say all.
    const size_t num = readings_.size();
    const bool is_between = num > 2 && !readings_[num - 2].is_border;
    if (is_between && !has_moved && readings_[num - 3].bytes == readings_[num - 1].bytes) {
      readings_.erase(readings_.end() - 2);
    }
    if (readings_.size() > max_readings_) thin();
    return has_moved;
  }

  void thin() {
    size_t kept = 0;
    bool drops = false;
    for (Reading& one : readings_) {
      if (!one.is_border && std::exchange(drops, !drops)) continue;
      std::swap(readings_[kept++], one);
    }
    readings_.resize(kept);
    period_ += period_;
  }

  // The links that carried the most in relation to their bandwidth; of several that carried the same the first.
  void choose(std::vector<int64_t>& chosen, std::vector<int64_t>& num_alike) const {
    if (readings_.empty()) return;
    const std::vector<double>& total = readings_.back().bytes;
    std::vector<int64_t> order(total.size());
    std::iota(order.begin(), order.end(), 0);
    const auto busy = [&](int64_t l) { return bytes_per_s_[l] > 0 ? total[l] / bytes_per_s_[l] : 0.0; };
    std::sort(order.begin(), order.end(),
              [&](int64_t a, int64_t b) { return busy(a) != busy(b) ? busy(a) > busy(b) : a < b; });
    for (const int64_t link : order) {
      if (total[link] <= 0) continue;
      size_t k = 0;
      while (k < chosen.size() && !are_alike(chosen[k], link)) ++k;
      if (k < chosen.size()) {
        ++num_alike[k];
      } else if (static_cast<int64_t>(chosen.size()) < num_links_) {
        chosen.push_back(link);
        num_alike.push_back(1);
      }
    }
  }

  bool are_alike(int64_t a, int64_t b) const {
    if (bytes_per_s_[a] != bytes_per_s_[b]) return false;
    for (auto one = readings_.rbegin(); one != readings_.rend(); ++one) {
      const double x = one->bytes[a], y = one->bytes[b];
      if (std::abs(x - y) > kAlike * std::max(x, y)) return false;
    }
    return true;
  }

  std::vector<double> bytes_per_s_;
  int64_t num_links_;
  SimTime period_;
  size_t max_readings_;
  std::vector<Reading> readings_;
  bool is_awake_ = false;
};

}  // namespace

std::unique_ptr<Controller> make_link_load_controller(const ControllerParams& params) {
  params.check_keys({"bytes_per_s", "num_links"});
  const int64_t num_links = params.integer("num_links");
  if (num_links < 1) ROSTAM_THROW(ConfigError, "controller link_load: num_links is " << num_links << " < 1");
  return std::make_unique<LinkLoad>(params.numbers("bytes_per_s"), num_links);
}

}  // namespace rostam::control
