// Streams: where every device's first-in first-out streams stand: one of kernels, one for each slot, and those that a
// program names; orders of communicators among them, which hold nothing but a position.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/instances.h"

namespace rostam::runtime {

struct alignas(64) Stream {
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
static_assert(sizeof(Stream) == 64, "one cache line");

class Streams {
 public:
  struct Next {  // a task of a live instance
    Instance* instance = nullptr;
    const Template* body = nullptr;
    int32_t task = 0;
  };

  Streams(const WeightedSystem& system, Instances& instances) : instances_(instances) {
    for (const workload::Device& device : system.devices) {
      first_.push_back(static_cast<uint32_t>(streams_.size()));
      const size_t num_slots = device.slots.size() + 1;
      streams_.resize(streams_.size() +
                      std::max(num_slots, static_cast<size_t>(system.graph->num_streams[device.program])));
      for (size_t k = first_.back(); k < streams_.size(); ++k) streams_[k].free_since = device.start;
    }
    first_.push_back(static_cast<uint32_t>(streams_.size()));
  }

  Stream& at(int32_t device, int32_t stream) { return streams_[first_[device] + static_cast<uint32_t>(stream)]; }
  const Stream& at(int32_t device, int32_t stream) const {
    return streams_[first_[device] + static_cast<uint32_t>(stream)];
  }
  int32_t num_streams(int32_t device) const { return static_cast<int32_t>(first_[device + 1] - first_[device]); }
  int32_t num_devices() const { return static_cast<int32_t>(first_.size()) - 1; }

  // Moves the stream past instances whose part on it is done. Returns its next task, if a live one has one.
  Next find_next(int32_t d, int32_t s) {
    Stream& stream = at(d, s);
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
    const Stream& stream = at(d, s);
    Instance& instance = instances_.at(d, stream.instance);
    const Template& body = instances_.body(instance);
    return {&instance, &body, body.stream_tasks[s][stream.position]};
  }

  // Whether the task is the next one of its order, if it has one.
  bool is_in_turn(int32_t d, const Next& next) {
    const int32_t order = next.body->tasks[next.task].order;
    if (order < 0) return true;
    const Next first = find_next(d, order);
    return first.instance == next.instance && first.task == next.task;
  }

  // Asks for what an event of the stream is going to look at.
  void fetch(int32_t d, int32_t s) const { __builtin_prefetch(&at(d, s), 1); }

  // The stream's next task in words.
  std::string describe(int32_t d, int32_t s) const {
    const Stream& stream = at(d, s);
    const std::string ended = "a task that has ended";
    if (stream.instance < instances_.first(d) || stream.instance >= instances_.next(d)) return ended;
    const auto& tasks = instances_.body(instances_.at(d, stream.instance)).stream_tasks[s];
    if (stream.position >= static_cast<int32_t>(tasks.size())) return ended;
    return instances_.describe({d, stream.instance, tasks[stream.position]});
  }

  // When the device's last task ended.
  SimTime last_end(int32_t device) const {
    SimTime end;
    for (int32_t s = 0; s < num_streams(device); ++s) end = std::max(end, at(device, s).free_since);
    return end;
  }

  // The device begins anew with its oldest live instance, or the next one that it makes.
  void reset(int32_t device, SimTime free_since) {
    for (int32_t s = 0; s < num_streams(device); ++s) {
      at(device, s) = Stream();
      at(device, s).free_since = free_since;
    }
  }

 private:
  Instances& instances_;
  std::vector<uint32_t> first_;  // per device, and the end
  std::vector<Stream> streams_;
};

}  // namespace rostam::runtime
