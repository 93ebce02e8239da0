#include "runtime/kernels.h"

#include <algorithm>
#include <cmath>

namespace rostam::runtime {

using workload::TaskKind;

namespace {

// The streams of a program that have kernels, ascending; that of kernels if none has.
std::vector<int32_t> compute_streams(const workload::TaskGraph& graph, const workload::Program& program) {
  std::vector<int32_t> found;
  for (const int32_t id : program.templates()) {
    for (const workload::Task& task : graph.templates[id].tasks) {
      if (task.kind == TaskKind::kCompute && (task.stream == 0 || task.duration > SimTime::zero())) {
        found.push_back(task.stream);
      }
    }
  }
  if (found.empty()) found.push_back(0);
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace

Kernels::Kernels(const folding::WeightedSystem& system, double comm_fraction, EventQueue& queue, KernelClient& client)
    : system_(system),
      comm_fraction_(comm_fraction),
      queue_(queue),
      client_(client),
      ends_(*this, &Kernels::end, &Kernels::fetch_end) {
  std::vector<std::vector<int32_t>> streams;  // by program
  for (const workload::Program& program : system.graph->programs) {
    streams.push_back(compute_streams(*system.graph, program));
  }
  for (size_t d = 0; d < system.devices.size(); ++d) {
    first_lane_.push_back(static_cast<int32_t>(lanes_.size()));
    for (const int32_t stream : streams[system.devices[d].program]) {
      Lane lane;
      lane.device = static_cast<int32_t>(d);
      lane.stream = stream;
      lane.idle_since = system.devices[d].start;
      lanes_.push_back(lane);
    }
  }
  first_lane_.push_back(static_cast<int32_t>(lanes_.size()));
}

int32_t Kernels::lane_of(int32_t d, int32_t stream) const {
  int32_t lane = first_lane_[d];
  while (lanes_[lane].stream != stream) ++lane;
  return lane;
}

void Kernels::start(int32_t d, int32_t stream, SimTime duration) {
  Lane& device = state(d);
  const int32_t number = lane_of(d, stream);
  Lane& lane = lanes_[number];
  const bool is_first = device.num_running == 0;
  if (is_first) {
    device.busy_since = queue_.now();
  } else {
    settle(d);
  }
  ++device.num_running;
  lane.is_running = true;
  lane.work_left_ps = std::ceil(static_cast<double>(duration.ps()) * system_.devices[d].slowdown);
  lane.work_since = queue_.now();
  if (is_first) {
    expect_end(number, speed(device));
  } else {
    expect_ends(d);
  }
}

// Schedules the end of a kernel from its work left and its present speed.
void Kernels::expect_end(int32_t number, double speed) {
  Lane& lane = lanes_[number];
  const SimTime end = queue_.now() + SimTime::from_whole_ps(std::ceil(lane.work_left_ps / speed));
  queue_.schedule(end, Priority::kNormal, &ends_, pack(number, static_cast<int32_t>(++lane.version)));
}

void Kernels::expect_ends(int32_t d) {
  const double now = speed(state(d));
  for (int32_t k = first_lane_[d]; k < first_lane_[d + 1]; ++k) {
    if (lanes_[k].is_running) expect_end(k, now);
  }
}

// Takes what has been done off the work of what runs.
void Kernels::settle(int32_t d) {
  const double until_now = speed(state(d));
  for (int32_t k = first_lane_[d]; k < first_lane_[d + 1]; ++k) {
    Lane& lane = lanes_[k];
    if (!lane.is_running) continue;
    const double done = static_cast<double>((queue_.now() - lane.work_since).ps()) * until_now;
    lane.work_left_ps = std::max(0.0, lane.work_left_ps - done);
    lane.work_since = queue_.now();
  }
}

// What collectives leave of a device.
double Kernels::share(const Lane& state, double comm_fraction) {
  if (state.num_collectives == 0) return 1;
  if (state.taken_ppm == 0) return 1 - comm_fraction;
  return std::min(1 - comm_fraction, std::max(kLeast, 1 - static_cast<double>(state.taken_ppm) * 1e-6));
}

// Of each of the kernels that run.
double Kernels::speed(const Lane& state) const {
  const double whole = share(state, comm_fraction_);
  return state.num_running > 1 ? whole / state.num_running : whole;
}

void Kernels::change_collectives(int32_t d, int32_t change, int32_t taken_ppm) {
  Lane& device = state(d);
  const double before = share(device, comm_fraction_);
  if (device.num_running > 0) settle(d);
  device.num_collectives += change;
  device.taken_ppm += int64_t{change} * taken_ppm;
  if (device.num_running == 0 || share(device, comm_fraction_) == before) return;
  expect_ends(d);
}

void Kernels::stop(int32_t d, SimTime when) {
  for (int32_t k = first_lane_[d]; k < first_lane_[d + 1]; ++k) {
    lanes_[k].is_running = false;
    ++lanes_[k].version;
  }
  Lane& device = state(d);
  device.num_running = device.num_collectives = 0;
  device.taken_ppm = 0;
  device.idle_since = when;
}

void Kernels::fetch_end(uint64_t payload) const {
  const Lane& lane = lanes_[high(payload)];
  fetch(lane.device);
  client_.fetch_kernel_end(lane.device, lane.stream);
}

void Kernels::end(uint64_t payload) {
  const int32_t number = high(payload);
  if (lanes_[number].version != static_cast<uint32_t>(low(payload))) return;
  const int32_t d = lanes_[number].device;
  Lane& device = state(d);
  if (device.num_running > 1) settle(d);
  lanes_[number].is_running = false;
  if (--device.num_running > 0) {
    expect_ends(d);
  } else {
    device.idle_since = queue_.now();
  }
  client_.on_kernel_end(d, lanes_[number].stream);
}

}  // namespace rostam::runtime
