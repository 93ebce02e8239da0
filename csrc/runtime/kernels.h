// Kernels: what runs on each device, one kernel on each of its streams that has any. Kernels of several streams share
// the device evenly: each of n runs at an nth of its speed, so that they take as long as one behind the other would
// (MODEL B8.7). All are slower while the device takes part in collectives (MODEL B8): at what their shares leave, but
// kLeast, or what `comm_fraction` of any collective leaves if that is less.
#pragma once

#include <cstdint>
#include <vector>

#include "folding/weighted_system.h"
#include "runtime/member_event.h"

namespace rostam::runtime {

class KernelClient {
 public:
  virtual ~KernelClient() = default;
  virtual void on_kernel_end(int32_t device, int32_t stream) = 0;
  // A kernel is about to end.
  virtual void fetch_kernel_end(int32_t device, int32_t stream) const = 0;
};

class Kernels {
 public:
  // comm_fraction: of a device's compute that its running collectives take.
  Kernels(const folding::WeightedSystem& system, double comm_fraction, EventQueue& queue, KernelClient& client);

  // Throws: RangeError if it would end after simulated time does.
  void start(int32_t device, int32_t stream, SimTime duration);

  // Whether any kernel runs on the device; since when one has, or, of an idle device, when the last time began and
  // ended.
  bool is_busy(int32_t device) const { return state(device).num_running > 0; }
  SimTime busy_since(int32_t device) const { return state(device).busy_since; }
  SimTime idle_since(int32_t device) const { return state(device).idle_since; }

  // Asks for what start() and change_collectives() are going to look at.
  void fetch(int32_t device) const { __builtin_prefetch(&lanes_[first_lane_[device]], 1); }

  // Nothing runs on the device any more, and it takes part in no collective; it is idle from `when` on.
  void stop(int32_t device, SimTime when);

  // The device joins (1) or leaves (-1) a collective that takes so many millionths of its compute: running kernels go
  // on at another speed.
  void change_collectives(int32_t device, int32_t change, int32_t taken_ppm);

 private:
  // A stream of a device that has kernels; a device's first one holds what is the device's.
  struct alignas(64) Lane {
    double work_left_ps = 0;  // at full speed, as of `work_since`
    SimTime work_since;
    int64_t taken_ppm = 0;  // by all collectives
    SimTime busy_since, idle_since;
    uint32_t version = 0;  // end events of older versions are stale
    int32_t device = 0, stream = 0;
    int32_t num_running = 0;
    int32_t num_collectives = 0;
    bool is_running = false;
  };
  static_assert(sizeof(Lane) == 64, "one cache line");
  static constexpr double kLeast = 0.1;  // multiprocessors are shared rather than all taken
  const Lane& state(int32_t device) const { return lanes_[first_lane_[device]]; }
  Lane& state(int32_t device) { return lanes_[first_lane_[device]]; }
  int32_t lane_of(int32_t device, int32_t stream) const;
  static double share(const Lane& state, double comm_fraction);
  double speed(const Lane& state) const;
  void settle(int32_t device);
  void expect_ends(int32_t device);
  void expect_end(int32_t lane, double speed);
  void end(uint64_t lane_and_version);
  void fetch_end(uint64_t lane_and_version) const;

  const folding::WeightedSystem& system_;
  double comm_fraction_;
  EventQueue& queue_;
  KernelClient& client_;
  MemberEvent<Kernels> ends_;
  std::vector<int32_t> first_lane_;  // per device, and the end
  std::vector<Lane> lanes_;
};

}  // namespace rostam::runtime
