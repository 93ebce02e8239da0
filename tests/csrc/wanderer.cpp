// wanderer: moves what goes from one accelerator to another onto a link of its own, and from that onto the next one,
// whose predecessor it takes away. Follows flows and iterations as well, to see that it hears of them.
#include <utility>

#include "control/registry.h"

namespace rostam::control {

namespace {

class Wanderer : public Controller {
 public:
  Wanderer(int32_t src, int32_t dst, std::vector<int64_t> times, std::vector<double> rates)
      : src_(src), dst_(dst), times_(std::move(times)), rates_(std::move(rates)) {}

  void begin(ControlPlane& plane) override {
    for (const int64_t time : times_) plane.wake_at(SimTime::from_ps(time));
  }

  void wake(ControlPlane& plane) override {
    const double left = plane.backlog(src_, dst_);
    const int32_t link = plane.add_link(src_, dst_, rates_[num_moves_++]);
    plane.set_route(src_, dst_, {{link, 1.0}}, SimTime::zero());
    const double kept = plane.backlog(src_, dst_);
    ROSTAM_CHECK(kept > left - 1 && kept < left + 1, "bytes were lost on the way from one link to another");
    ROSTAM_CHECK(num_started_ > 0 || left == 0, "bytes are left of flows that nobody was told of");
    if (last_ >= 0) {
      ROSTAM_CHECK(plane.link_load(last_) > 0 || left == 0, "the last link carried nothing");
      plane.remove_links({last_});
    }
    last_ = link;
  }

  void on(const Event& event, ControlPlane&) override {
    num_started_ += event.kind == kFlowStart;
    num_ended_ += event.kind == kFlowEnd;
    ROSTAM_CHECK(num_ended_ <= num_started_, "a flow ended before it started");
  }

  uint32_t subscriptions() const override { return kFlowStart | kFlowEnd | kIterationEnd; }
  folding::Footprint footprint() const override { return {true, {}}; }

 private:
  int32_t src_, dst_;
  std::vector<int64_t> times_;
  std::vector<double> rates_;
  size_t num_moves_ = 0;
  int32_t last_ = -1;
  int64_t num_started_ = 0, num_ended_ = 0;
};

}  // namespace

std::unique_ptr<Controller> make_wanderer_controller(const ControllerParams& params) {
  params.check_keys({"src", "dst", "time_ps", "bytes_per_s"});
  return std::make_unique<Wanderer>(static_cast<int32_t>(params.integers("src").at(0)),
                                    static_cast<int32_t>(params.integers("dst").at(0)), params.integers("time_ps"),
                                    params.numbers("bytes_per_s"));
}

}  // namespace rostam::control
