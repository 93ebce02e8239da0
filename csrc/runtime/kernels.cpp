#include "runtime/kernels.h"

#include <algorithm>
#include <cmath>

namespace rostam::runtime {

Kernels::Kernels(const folding::WeightedSystem& system, double comm_fraction, EventQueue& queue, KernelClient& client)
    : system_(system),
      comm_fraction_(comm_fraction),
      queue_(queue),
      client_(client),
      ends_(*this, &Kernels::end, &Kernels::fetch_end),
      devices_(system.devices.size()) {}

void Kernels::start(int32_t d, SimTime duration) {
  devices_[d].is_running = true;
  devices_[d].work_left_ps = std::ceil(static_cast<double>(duration.ps()) * system_.devices[d].slowdown);
  expect_end(d);
}

// Schedules the end of the device's kernel from its work left and its present speed.
void Kernels::expect_end(int32_t d) {
  State& state = devices_[d];
  state.work_since = queue_.now();
  const SimTime end = queue_.now() + SimTime::from_whole_ps(std::ceil(state.work_left_ps / speed(state)));
  queue_.schedule(end, Priority::kNormal, &ends_, pack(d, static_cast<int32_t>(++state.version)));
}

double Kernels::speed(const State& state) const {
  if (state.num_collectives == 0) return 1;
  if (state.taken_ppm == 0) return 1 - comm_fraction_;
  return std::min(1 - comm_fraction_, std::max(kLeast, 1 - static_cast<double>(state.taken_ppm) * 1e-6));
}

void Kernels::change_collectives(int32_t d, int32_t change, int32_t taken_ppm) {
  State& state = devices_[d];
  const double before = speed(state);
  if (state.is_running) state.work_left_ps -= static_cast<double>((queue_.now() - state.work_since).ps()) * before;
  state.work_since = queue_.now();
  state.num_collectives += change;
  state.taken_ppm += int64_t{change} * taken_ppm;
  if (!state.is_running || speed(state) == before) return;
  state.work_left_ps = std::max(0.0, state.work_left_ps);
  expect_end(d);
}

void Kernels::stop(int32_t d) {
  devices_[d].is_running = false;
  devices_[d].num_collectives = 0;
  devices_[d].taken_ppm = 0;
  ++devices_[d].version;
}

void Kernels::fetch_end(uint64_t payload) const {
  fetch(high(payload));
  client_.fetch_kernel_end(high(payload));
}

void Kernels::end(uint64_t payload) {
  const int32_t d = high(payload);
  if (devices_[d].version != static_cast<uint32_t>(low(payload))) return;
  devices_[d].is_running = false;
  client_.on_kernel_end(d);
}

}  // namespace rostam::runtime
