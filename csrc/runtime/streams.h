// Streams: where every device's first-in first-out streams stand: one of kernels, and one for each slot.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/instances.h"

namespace rostam::runtime {

struct Stream {
  int64_t instance = 0;    // sequence number of the instance that holds its next task
  int32_t position = 0;    // index in that template's list for this stream
  bool is_busy = false;    // its next task waits for its launch or runs
  bool has_begun = false;  // it runs
  SimTime host_wait;       // of its last task that has begun: how long it waited for the host alone
  SimTime free_since;
  SimTime task_start;
  int64_t last_wait = -1;  // number of its last task in the breakdown, if that was communication
  CriticalPath::Ref last;
};

class Streams {
 public:
  struct Next {  // a task of a live instance
    Instance* instance = nullptr;
    const Template* body = nullptr;
    int32_t task = 0;
  };

  Streams(const WeightedSystem& system, Instances& instances) : instances_(instances) {
    for (const workload::Device& device : system.devices) {
      devices_.emplace_back(device.slots.size() + 1);
      reset(static_cast<int32_t>(devices_.size()) - 1, device.start);
    }
  }

  Stream& at(int32_t device, int32_t stream) { return devices_[device][stream]; }
  int32_t num_streams(int32_t device) const { return static_cast<int32_t>(devices_[device].size()); }
  int32_t num_devices() const { return static_cast<int32_t>(devices_.size()); }

  // Moves the stream past instances whose part on it is done. Returns its next task, if a live one has one.
  Next find_next(int32_t d, int32_t s) {
    Stream& stream = devices_[d][s];
    if (stream.instance < instances_.first(d)) {
      stream.instance = instances_.first(d);
      stream.position = 0;
    }
    while (stream.instance < instances_.next(d)) {
      Instance& instance = instances_.at(d, stream.instance);
      const Template& body = instances_.body(instance);
      const auto& lists = body.stream_tasks;
      if (s < static_cast<int32_t>(lists.size()) && stream.position < static_cast<int32_t>(lists[s].size())) {
        return {&instance, &body, lists[s][stream.position]};
      }
      ++stream.instance;
      stream.position = 0;
    }
    return {};
  }

  // REQUIRES: find_next() found one.
  Next next(int32_t d, int32_t s) const {
    const Stream& stream = devices_[d][s];
    Instance& instance = instances_.at(d, stream.instance);
    const Template& body = instances_.body(instance);
    return {&instance, &body, body.stream_tasks[s][stream.position]};
  }

  // The stream's next task in words.
  std::string describe(int32_t d, int32_t s) const {
    const Stream& stream = devices_[d][s];
    const std::string ended = "a task that has ended";
    if (stream.instance < instances_.first(d) || stream.instance >= instances_.next(d)) return ended;
    const auto& tasks = instances_.body(instances_.at(d, stream.instance)).stream_tasks[s];
    if (stream.position >= static_cast<int32_t>(tasks.size())) return ended;
    return instances_.describe({d, stream.instance, tasks[stream.position]});
  }

  // When the device's last task ended.
  SimTime last_end(int32_t device) const {
    SimTime end;
    for (const Stream& stream : devices_[device]) end = std::max(end, stream.free_since);
    return end;
  }

  // The device begins anew with its oldest live instance, or the next one that it makes.
  void reset(int32_t device, SimTime free_since) {
    for (Stream& stream : devices_[device]) {
      stream = Stream();
      stream.free_since = free_since;
    }
  }

 private:
  Instances& instances_;
  std::vector<std::vector<Stream>> devices_;
};

}  // namespace rostam::runtime
