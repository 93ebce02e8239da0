// link_bandwidth: links whose bandwidth changes at given times, what `events` of a simulation are.
#include <cstring>
#include <utility>

#include "control/registry.h"
#include "sim/random.h"

namespace rostam::control {

namespace {

struct Change {
  SimTime time;
  int32_t link = 0;
  double bytes_per_s = 0;
};

class LinkBandwidth : public Controller {
 public:
  explicit LinkBandwidth(std::vector<Change> changes) : changes_(std::move(changes)) {}

  void begin(ControlPlane& plane) override {
    is_done_.assign(changes_.size(), 0);
    for (const Change& change : changes_) plane.wake_at(change.time);
  }

  void wake(ControlPlane& plane) override {
    for (size_t k = 0; k < changes_.size(); ++k) {
      if (is_done_[k] || changes_[k].time > plane.now()) continue;
      is_done_[k] = 1;
      plane.set_capacity(changes_[k].link, changes_[k].bytes_per_s);
    }
  }

  folding::Footprint footprint() const override {
    folding::Footprint touched;
    for (const Change& change : changes_) {
      uint64_t bits;
      std::memcpy(&bits, &change.bytes_per_s, sizeof bits);
      touched.links.push_back({change.link, mix(mix(static_cast<uint64_t>(change.time.ps())) + bits)});
    }
    return touched;
  }

 private:
  std::vector<Change> changes_;
  std::vector<uint8_t> is_done_;
};

}  // namespace

std::unique_ptr<Controller> make_link_bandwidth_controller(const ControllerParams& params) {
  params.check_keys({"time_ps", "link", "bytes_per_s"});
  const std::vector<int64_t> times = params.integers("time_ps"), links = params.integers("link");
  const std::vector<double> rates = params.numbers("bytes_per_s");
  if (links.size() != times.size() || rates.size() != times.size()) {
    ROSTAM_THROW(ConfigError, "controller link_bandwidth got " << times.size() << " times, " << links.size()
                                                               << " links and " << rates.size() << " bandwidths");
  }
  std::vector<Change> changes;
  for (size_t k = 0; k < times.size(); ++k) {
    if (times[k] < 0 || !(rates[k] >= 0) || links[k] < 0 || links[k] > INT32_MAX) {
      ROSTAM_THROW(ConfigError, "an event at " << SimTime::from_ps(times[k]).seconds() << " s sets link " << links[k]
                                               << " to " << rates[k] << " bytes/s; none may be negative");
    }
    changes.push_back({SimTime::from_ps(times[k]), static_cast<int32_t>(links[k]), rates[k]});
  }
  return std::make_unique<LinkBandwidth>(std::move(changes));
}

}  // namespace rostam::control
