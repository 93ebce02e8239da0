// Channels: the directed pairs of devices that exchange messages on a slot, and the regions through which a device
// moves what it owns (collectives/region.h), from the programs alone. A channel's number is its place in the order
// (source, slot, destination): sums that go by it, and hashed paths, stay what they are when slots get other numbers in
// the same order.
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

  // The same of the messages that stand for regions with engines that know no trees; of other schedules none.
  const std::vector<std::pair<int32_t, uint64_t>>& pairs_of(int32_t device, int32_t slot);

  // Schedules of the distinct communication tasks that a program has on each of its slots; -1 for sends.
  const std::vector<std::vector<int32_t>>& uses_of(int32_t program);

  // The devices that the device sends to on the slot, or a region's channel_to, with a label that tells what is sent
  // when; one entry for each schedule and peer. Valid until the next call.
  const std::vector<std::pair<int32_t, uint64_t>>& peers_of(int32_t device, int32_t slot);

 private:
  void collect_peers(const SlotBinding& binding, int32_t schedule_id);
  void collect_regions(const SlotBinding& binding, int32_t schedule_id);

  const TaskGraph& graph_;
  std::unordered_map<int32_t, std::vector<std::vector<int32_t>>> uses_;
  std::vector<std::pair<int32_t, uint64_t>> peers_;
  std::vector<collectives::Transfer> transfers_;
};

using ChannelId = uint32_t;

// Where a channel leads that is one of a region of TaskGraph::regions, in place of a device, and back.
constexpr int32_t channel_to(int32_t region) { return -1 - region; }
constexpr int32_t region_of(int32_t destination) { return -1 - destination; }
constexpr bool is_region(int32_t destination) { return destination < 0; }

// All channels out of some devices, numbered. Sources are indices into those devices (the simulated ones of a folded
// system), destinations are devices of the graph, or regions. Schedules with regions have channels of both kinds.
class ChannelTable {
 public:
  ChannelTable() = default;
  // Cost: what the devices send in one iteration; memory: 4 bytes for each channel.
  ChannelTable(const TaskGraph& graph, const std::vector<int32_t>& devices);

  size_t size() const { return destinations_.size(); }

  // REQUIRES: it exists. Cost: O(log of the slot's channels).
  ChannelId find(int32_t source, int32_t slot, int32_t destination) const;

  // The destinations of a source's slot, ascending; none for slots that its program does not use.
  struct Span {
    const int32_t* first = nullptr;
    const int32_t* last = nullptr;
    const int32_t* begin() const { return first; }
    const int32_t* end() const { return last; }
    size_t size() const { return static_cast<size_t>(last - first); }
  };
  Span destinations(int32_t source, int32_t slot) const;

  // How many channels of lower slots have the same ends: 0 for the first of a pair. Selects its hashed path.
  int32_t rank_in_pair(int32_t source, int32_t slot, int32_t destination) const;

 private:
  bool has(size_t first, size_t last, int32_t destination) const;

  std::vector<size_t> first_slot_;     // per source, into begin_
  std::vector<size_t> begin_;          // per slot of every source, into destinations_; one more at the end
  std::vector<int32_t> destinations_;  // ascending within a slot
};

}  // namespace rostam::workload
