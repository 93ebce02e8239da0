// The way from a folded system's results back to those of all devices and links.
#include <utility>

#include "folding/folding.h"

namespace rostam::folding {

namespace {

template <typename T>
std::vector<T> spread(const std::vector<T>& simulated, const std::vector<int32_t>& stand_in, size_t width = 1) {
  std::vector<T> all;
  all.reserve(stand_in.size() * width);
  for (const int32_t one : stand_in) {
    const auto row = simulated.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(one) * width);
    all.insert(all.end(), row, row + static_cast<std::ptrdiff_t>(width));
  }
  return all;
}

}  // namespace

workload::SessionResult expand(const WeightedSystem& system, workload::SessionResult simulated,
                               const std::vector<int32_t>& recorded) {
  workload::SessionResult result = std::move(simulated);
  const auto num_buckets = static_cast<size_t>(result.num_buckets);
  result.breakdown_ps = spread(result.breakdown_ps, system.device_stand_in, num_buckets);
  result.device_end_ps = spread(result.device_end_ps, system.device_stand_in);
  result.wire_sent_bytes = spread(result.wire_sent_bytes, system.device_stand_in);
  result.wire_received_bytes = spread(result.wire_received_bytes, system.device_stand_in);
  result.link_bytes = spread(result.link_bytes, system.link_stand_in);
  result.link_busy_s = spread(result.link_busy_s, system.link_stand_in);
  // Links that were added in the run follow those of the system, which is not folded then.
  const std::vector<double> all_links = std::move(result.total_link_bytes);
  result.total_link_bytes = spread(all_links, system.link_stand_in);
  const auto num_links = static_cast<std::ptrdiff_t>(system.links.size());
  result.total_link_bytes.insert(result.total_link_bytes.end(), all_links.begin() + num_links, all_links.end());
  // Every recorded device gets the entries of the simulated one that stands for it.
  std::vector<workload::TimelineEntry> timeline;
  for (const workload::TimelineEntry& entry : result.timeline) {
    for (const int32_t device : recorded) {
      if (system.device_stand_in[device] != entry.device) continue;
      timeline.push_back(entry);
      timeline.back().device = device;
    }
  }
  result.timeline = std::move(timeline);
  for (workload::JobResult& job : result.jobs) {
    for (workload::PathNode& node : job.critical_path) {
      if (!node.is_join) node.device = system.original[node.device];
    }
  }
  return result;
}

}  // namespace rostam::folding
