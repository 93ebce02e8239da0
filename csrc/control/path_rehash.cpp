// path_rehash: every large message draws one of its pair's paths, and draws anew after each period, as switches do that
// hash flowlets: no knowledge of others, no controller. Messages below least_bytes keep the routing's own paths.
// Source: flowlet switching (Sinha et al., HotNets 2004; Vanini et al., LetFlow, NSDI 2017), where pauses part a flow's
// bursts; messages here have none, so that time does.
#include <map>
#include <unordered_map>
#include <utility>

#include "control/registry.h"
#include "sim/random.h"

namespace rostam::control {

namespace {

// Own: large as path_assignment has it; a millisecond is 12.5 MB at 100 Gb/s.
constexpr int64_t kLeastBytes = 1'000'000;
constexpr int64_t kPeriodPs = 1'000'000'000;

class PathRehash : public Controller {
 public:
  PathRehash(int64_t least_bytes, SimTime period, uint64_t seed)
      : least_bytes_(least_bytes), period_(period), seed_(seed) {}

  void begin(ControlPlane&) override {}

  void on(const Event& event, ControlPlane& plane) override {
    if (event.kind == kFlowEnd) {
      flows_.erase(event.flow);
      return;
    }
    if (event.bytes < least_bytes_ || plane.paths(event.src, event.dst).size() < 2) return;
    const uint64_t pair = static_cast<uint64_t>(event.src) << 32 | static_cast<uint32_t>(event.dst);
    Flow& flow = flows_[event.flow] = {event.src, event.dst, mix(mix(seed_ + num_started_[pair]++) + pair)};
    draw(event.flow, flow, plane);
    if (!std::exchange(is_awake_, true)) plane.wake_at(plane.now() + period_);
  }

  void wake(ControlPlane& plane) override {
    is_awake_ = !flows_.empty();
    for (auto& [number, flow] : flows_) draw(number, flow, plane);
    if (is_awake_) plane.wake_at(plane.now() + period_);
  }

  uint32_t subscriptions() const override { return kFlowStart | kFlowEnd; }
  folding::Footprint footprint() const override {
    folding::Footprint all;
    all.chooses_paths = true;
    return all;
  }
  // What it draws differs from iteration to iteration.
  bool is_settled() const override { return false; }

 private:
  struct Flow {
    int32_t src = 0, dst = 0;
    uint64_t state = 0;  // of its draws, by what its pair sent before and nothing else
  };

  static void draw(int32_t number, Flow& flow, ControlPlane& plane) {
    const std::vector<routing::Path>& paths = plane.paths(flow.src, flow.dst);
    flow.state = mix(flow.state);
    const size_t first = flow.state % paths.size();
    for (size_t k = 0; k < paths.size(); ++k) {  // switches hash over what works
      const routing::Path& path = paths[(first + k) % paths.size()];
      bool works = true;
      for (const int32_t link : path.links) works = works && plane.capacity(link) > 0;
      if (!works) continue;
      plane.move_message(number, flow.src, flow.dst, path);
      return;
    }
  }

  int64_t least_bytes_;
  SimTime period_;
  uint64_t seed_;
  std::map<int32_t, Flow> flows_;                       // under way
  std::unordered_map<uint64_t, uint64_t> num_started_;  // by pair
  bool is_awake_ = false;
};

}  // namespace

std::unique_ptr<Controller> make_path_rehash_controller(const ControllerParams& params) {
  params.check_keys({"least_bytes", "period_ps", "seed"});
  const auto number = [&params](const char* key, int64_t otherwise, int64_t least) {
    const int64_t value = params.has(key) ? params.integer(key) : otherwise;
    if (value < least) {
      ROSTAM_THROW(ConfigError, "controller path_rehash: " << key << " is " << value << " < " << least);
    }
    return value;
  };
  const int64_t least_bytes = number("least_bytes", kLeastBytes, 0);
  const SimTime period = SimTime::from_ps(number("period_ps", kPeriodPs, 1));
  return std::make_unique<PathRehash>(least_bytes, period, static_cast<uint64_t>(number("seed", 0, 0)));
}

}  // namespace rostam::control
