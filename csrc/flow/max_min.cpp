#include "flow/max_min.h"

#include <algorithm>
#include <functional>

#include "sim/errors.h"

namespace rostam::flow {

namespace {

// Levels closer than this are one level: symmetric links must not drift apart by the order of subtraction.
constexpr double kSameLevel = 1e-12;
constexpr double kCapacitySlack = 1e-9;

}  // namespace

void MaxMinProblem::clear() {
  capacity.clear();
  offset.assign(1, 0);
  link.clear();
  share.clear();
  rate_cap.clear();
  rate.clear();
}

void MaxMinProblem::add_flow(double cap) {
  offset.push_back(static_cast<uint32_t>(link.size()));
  rate_cap.push_back(cap);
}

void MaxMinProblem::add_hop(uint32_t link_index, double hop_share) {
  link.push_back(link_index);
  share.push_back(hop_share);
  offset.back() = static_cast<uint32_t>(link.size());
}

void MaxMinProblem::index_links() {
  const size_t num_links = capacity.size();
  left_ = capacity;
  weight_.assign(num_links, 0);
  num_open_.assign(num_links, 0);
  link_offset_.assign(num_links + 1, 0);
  for (size_t k = 0; k < link.size(); ++k) {
    weight_[link[k]] += share[k];
    ++num_open_[link[k]];
    ++link_offset_[link[k] + 1];
  }
  for (size_t l = 0; l < num_links; ++l) link_offset_[l + 1] += link_offset_[l];
  link_flows_.resize(link.size());
  std::vector<uint32_t> next(link_offset_.begin(), link_offset_.end() - 1);
  for (uint32_t f = 0; f + 1 < offset.size(); ++f) {
    for (uint32_t k = offset[f]; k < offset[f + 1]; ++k) link_flows_[next[link[k]]++] = f;
  }
}

void MaxMinProblem::freeze(uint32_t flow, double level) {
  is_frozen_[flow] = 1;
  rate[flow] = level;
  for (uint32_t k = offset[flow]; k < offset[flow + 1]; ++k) {
    left_[link[k]] -= share[k] * level;
    weight_[link[k]] -= share[k];
    --num_open_[link[k]];
  }
}

void MaxMinProblem::solve() {
  const uint32_t num_flows = static_cast<uint32_t>(rate_cap.size());
  const uint32_t num_links = static_cast<uint32_t>(capacity.size());
  index_links();
  rate.assign(num_flows, 0);
  is_frozen_.assign(num_flows, 0);
  heap_.clear();
  // A link's level only rises while others fill, so a stale heap entry is a lower bound and is pushed back.
  for (uint32_t l = 0; l < num_links; ++l) {
    if (num_open_[l] > 0) heap_.emplace_back(left_[l] / weight_[l], l);
  }
  for (uint32_t f = 0; f < num_flows; ++f) {
    if (rate_cap[f] < 1e300) heap_.emplace_back(rate_cap[f], num_links + f);
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  double last_level = 0;
  while (!heap_.empty()) {
    auto [level, index] = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    heap_.pop_back();
    if (index >= num_links) {
      if (!is_frozen_[index - num_links]) freeze(index - num_links, rate_cap[index - num_links]);
      continue;
    }
    if (num_open_[index] == 0) continue;
    const double current = std::max(left_[index], 0.0) / weight_[index];
    if (current > level * (1 + kSameLevel)) {
      heap_.emplace_back(current, index);
      std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
      continue;
    }
    // Snap to the previous level when equal up to rounding.
    if (level > last_level * (1 + kSameLevel)) last_level = level;
    for (uint32_t k = link_offset_[index]; k < link_offset_[index + 1]; ++k) {
      const uint32_t flow = link_flows_[k];
      if (!is_frozen_[flow]) freeze(flow, last_level);
    }
  }
  for (uint32_t l = 0; l < num_links; ++l) {
    ROSTAM_CHECK(left_[l] >= -kCapacitySlack * capacity[l] - 1e-6, "a link carries " << capacity[l] - left_[l]
                     << " bytes/s, above its capacity " << capacity[l]);
  }
}

}  // namespace rostam::flow
