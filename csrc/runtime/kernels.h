// Kernels: the one kernel that runs on each device, slower while the device takes part in collectives (MODEL B8): at
// what their shares leave, but kLeast, or what `comm_fraction` of any collective leaves if that is less.
#pragma once

#include <cstdint>
#include <vector>

#include "folding/weighted_system.h"
#include "runtime/member_event.h"

namespace rostam::runtime {

class KernelClient {
 public:
  virtual ~KernelClient() = default;
  virtual void on_kernel_end(int32_t device) = 0;
  // A kernel is about to end.
  virtual void fetch_kernel_end(int32_t device) const = 0;
};

class Kernels {
 public:
  // comm_fraction: of a device's compute that its running collectives take.
  Kernels(const folding::WeightedSystem& system, double comm_fraction, EventQueue& queue, KernelClient& client);

  // Throws: RangeError if it would end after simulated time does.
  void start(int32_t device, SimTime duration);

  // Asks for what start() and change_collectives() are going to look at.
  void fetch(int32_t device) const { __builtin_prefetch(&devices_[device], 1); }

  // Nothing runs on the device any more, and it takes part in no collective.
  void stop(int32_t device);

  // The device joins (1) or leaves (-1) a collective that takes so many millionths of its compute: a running kernel
  // goes on at another speed.
  void change_collectives(int32_t device, int32_t change, int32_t taken_ppm);

 private:
  struct alignas(64) State {
    bool is_running = false;
    double work_left_ps = 0;  // at full speed, as of `work_since`
    SimTime work_since;
    uint32_t version = 0;  // end events of older versions are stale
    int32_t num_collectives = 0;
    int64_t taken_ppm = 0;  // by all of them
  };
  static constexpr double kLeast = 0.1;  // multiprocessors are shared rather than all taken
  double speed(const State& state) const;
  void expect_end(int32_t device);
  void end(uint64_t device_and_version);
  void fetch_end(uint64_t device_and_version) const;

  const folding::WeightedSystem& system_;
  double comm_fraction_;
  EventQueue& queue_;
  KernelClient& client_;
  MemberEvent<Kernels> ends_;
  std::vector<State> devices_;
};

}  // namespace rostam::runtime
