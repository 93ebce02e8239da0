// Channels: the directed pairs of devices that exchange messages on a slot, from the programs alone.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "workload/task_graph.h"

namespace rostam::workload {

class ChannelLister {
 public:
  explicit ChannelLister(const TaskGraph& graph) : graph_(graph) {}

  // Schedules of the distinct communication tasks that a program has on each of its slots; -1 for sends.
  const std::vector<std::vector<int32_t>>& uses_of(int32_t program);

  // Whom the device sends to on the slot, with a label that tells what is sent when; one entry a schedule and peer.
  // Valid until the next call.
  const std::vector<std::pair<int32_t, uint64_t>>& peers_of(int32_t device, int32_t slot);

 private:
  void collect_peers(const SlotBinding& binding, int32_t schedule_id);

  const TaskGraph& graph_;
  std::unordered_map<int32_t, std::vector<std::vector<int32_t>>> uses_;
  std::vector<std::pair<int32_t, uint64_t>> peers_;
  std::vector<collectives::Transfer> transfers_;
};

// Names a channel; the destination is a device, also where the source is a class of devices.
inline uint64_t channel_key(int32_t source, int32_t slot, int32_t destination) {
  return uint64_t(uint32_t(source)) << 40 | uint64_t(uint32_t(slot)) << 32 | uint32_t(destination);
}

}  // namespace rostam::workload
