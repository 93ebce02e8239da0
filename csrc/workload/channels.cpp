#include "workload/channels.h"

#include <algorithm>

#include "sim/random.h"

namespace rostam::workload {

const std::vector<std::vector<int32_t>>& ChannelLister::uses_of(int32_t program) {
  auto [entry, is_new] = uses_.try_emplace(program);
  if (is_new) {
    entry->second.resize(graph_.programs[program].num_slots);
    for (const ProgramEntry& step : graph_.programs[program].entries) {
      for (const Task& task : graph_.templates[step.template_id].tasks) {
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
  for (const int32_t schedule : uses_of(source.program)[slot]) collect_peers(source.slots[slot], schedule);
  return peers_;
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
  for (int32_t step = 0; step < num_steps; ++step) {
    transfers_.clear();
    schedule.sends(binding.rank, step, transfers_);
    for (const collectives::Transfer& transfer : transfers_) {
      labels[transfer.peer] += mix(mix(uint64_t(step) << 32 | uint32_t(transfer.num_chunks)) + uint64_t(schedule_id));
    }
  }
  for (const auto& [rank, label] : labels) peers_.emplace_back(graph_.groups[binding.group][rank], label);
}

}  // namespace rostam::workload
