#include "workload/channels.h"

#include <algorithm>
#include <limits>

#include "sim/interrupt.h"
#include "sim/random.h"

namespace rostam::workload {

const std::vector<std::vector<int32_t>>& ChannelLister::uses_of(int32_t program) {
  auto [entry, is_new] = uses_.try_emplace(program);
  if (is_new) {
    entry->second.resize(graph_.num_slots[program]);
    for (const int32_t id : graph_.programs[program].templates()) {
      for (const Task& task : graph_.templates[id].tasks) {
        if (task.kind != TaskKind::kCollective && task.kind != TaskKind::kSend) continue;
        auto& list = entry->second[task.slot];
        if (std::find(list.begin(), list.end(), task.schedule) == list.end()) list.push_back(task.schedule);
      }
    }
  }
  return entry->second;
}

const std::vector<std::pair<int32_t, uint64_t>>& ChannelLister::peers_of(int32_t device, int32_t slot) {
  peers_.clear();
  const Device& source = graph_.devices[device];
  for (const int32_t schedule : uses_of(source.program)[slot]) {
    if (schedule >= 0 && !graph_.region_of[static_cast<size_t>(schedule)].empty()) {
      collect_regions(source.slots[slot], schedule);
    } else {
      collect_peers(source.slots[slot], schedule);
    }
  }
  return peers_;
}

const std::vector<std::pair<int32_t, uint64_t>>& ChannelLister::pairs_of(int32_t device, int32_t slot) {
  peers_.clear();
  const Device& source = graph_.devices[device];
  for (const int32_t schedule : uses_of(source.program)[slot]) {
    if (schedule < 0 || graph_.region_of[static_cast<size_t>(schedule)].empty()) continue;
    collect_peers(source.slots[slot], schedule);
  }
  return peers_;
}

void ChannelLister::collect_regions(const SlotBinding& binding, int32_t schedule_id) {
  const collectives::Schedule& schedule = *graph_.schedules[schedule_id];
  std::unordered_map<int32_t, uint64_t> labels;
  std::vector<collectives::RegionTransfer> transfers;
  for (int32_t step = 0; step < schedule.shape().num_steps; ++step) {
    transfers.clear();
    schedule.region_transfers(binding.rank, step, transfers);
    for (const collectives::RegionTransfer& transfer : transfers) {
      const int32_t region = graph_.region_of[static_cast<size_t>(schedule_id)][static_cast<size_t>(transfer.region)];
      labels[region] += mix(mix(uint64_t(step) << 32 | uint32_t(transfer.num_chunks)) + uint64_t(schedule_id));
    }
  }
  for (const auto& [region, label] : labels) peers_.emplace_back(channel_to(region), label + mix(uint64_t(region) + 3));
}

void ChannelLister::collect_peers(const SlotBinding& binding, int32_t schedule_id) {
  if (schedule_id < 0) {
    peers_.emplace_back(binding.peer, mix(1));
    return;
  }
  const collectives::Schedule& schedule = *graph_.schedules[schedule_id];
  std::unordered_map<int32_t, uint64_t> labels;
  // Where all steps are alike the first one tells them apart as well as all of them do.
  const collectives::Shape& shape = schedule.shape();
  const int32_t num_steps = shape.has_fixed_peers ? std::min(1, shape.num_steps) : shape.num_steps;
  InterruptPoll poll;
  for (int32_t step = 0; step < num_steps; ++step) {
    poll();
    transfers_.clear();
    schedule.messages(binding.rank, step, transfers_);
    for (const collectives::Transfer& transfer : transfers_) {
      labels[transfer.peer] += mix(mix(uint64_t(step) << 32 | uint32_t(transfer.num_chunks)) + uint64_t(schedule_id));
    }
  }
  for (const auto& [rank, label] : labels) peers_.emplace_back(graph_.groups[binding.group][rank], label);
}

ChannelTable::ChannelTable(const TaskGraph& graph, const std::vector<int32_t>& devices) {
  ChannelLister lister(graph);
  for (const int32_t device : devices) {
    first_slot_.push_back(begin_.size());
    const size_t num_slots = lister.uses_of(graph.devices[device].program).size();
    for (size_t slot = 0; slot < num_slots; ++slot) {
      const size_t begin = destinations_.size();
      begin_.push_back(begin);
      for (const auto& [peer, label] : lister.peers_of(device, static_cast<int32_t>(slot))) {
        destinations_.push_back(peer);
      }
      for (const auto& [peer, label] : lister.pairs_of(device, static_cast<int32_t>(slot))) {
        destinations_.push_back(peer);
      }
      const auto first = destinations_.begin() + static_cast<std::ptrdiff_t>(begin);
      std::sort(first, destinations_.end());
      destinations_.erase(std::unique(first, destinations_.end()), destinations_.end());
    }
  }
  first_slot_.push_back(begin_.size());
  begin_.push_back(destinations_.size());
  if (destinations_.size() >= std::numeric_limits<ChannelId>::max()) {
    ROSTAM_THROW(ConfigError, "the devices exchange messages in " << destinations_.size()
                                                                  << " directed pairs; at most 2^32 - 2 fit");
  }
}

ChannelId ChannelTable::find(int32_t source, int32_t slot, int32_t destination) const {
  const size_t place = first_slot_[source] + static_cast<size_t>(slot);
  const auto first = destinations_.begin() + static_cast<std::ptrdiff_t>(begin_[place]);
  const auto last = destinations_.begin() + static_cast<std::ptrdiff_t>(begin_[place + 1]);
  const auto found = std::lower_bound(first, last, destination);
  ROSTAM_CHECK(found != last && *found == destination,
               "no channel from " << source << " on slot " << slot << " to device " << destination);
  return static_cast<ChannelId>(found - destinations_.begin());
}

ChannelTable::Span ChannelTable::destinations(int32_t source, int32_t slot) const {
  const size_t place = first_slot_[source] + static_cast<size_t>(slot);
  if (place >= first_slot_[source + 1]) return {};
  return {destinations_.data() + begin_[place], destinations_.data() + begin_[place + 1]};
}

int32_t ChannelTable::rank_in_pair(int32_t source, int32_t slot, int32_t destination) const {
  int32_t rank = 0;
  for (size_t place = first_slot_[source]; place < first_slot_[source] + static_cast<size_t>(slot); ++place) {
    rank += has(begin_[place], begin_[place + 1], destination);
  }
  return rank;
}

bool ChannelTable::has(size_t first, size_t last, int32_t destination) const {
  const auto begin = destinations_.begin();
  return std::binary_search(begin + static_cast<std::ptrdiff_t>(first), begin + static_cast<std::ptrdiff_t>(last),
                            destination);
}

}  // namespace rostam::workload
