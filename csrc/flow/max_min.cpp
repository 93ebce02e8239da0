#include "flow/max_min.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "sim/errors.h"

namespace rostam::flow {

namespace {

// Levels closer than this are one level: symmetric links must not drift apart by the order of subtraction.
constexpr double kSameLevel = 1e-12;
constexpr double kCapacitySlack = 1e-9;
constexpr size_t kScanLinks = 48;  // components up to this size are scanned, larger ones use a heap

}  // namespace

void MaxMinProblem::clear() {
  capacity.clear();
  offset.assign(1, 0);
  link.clear();
  share.clear();
  rate_cap.clear();
  rate.clear();
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
  next_.assign(link_offset_.begin(), link_offset_.end() - 1);
  for (uint32_t f = 0; f + 1 < offset.size(); ++f) {
    for (uint32_t k = offset[f]; k < offset[f + 1]; ++k) link_flows_[next_[link[k]]++] = f;
  }
}

void MaxMinProblem::freeze(uint32_t flow, double level) {
  is_frozen_[flow] = 1;
  --num_left_;
  rate[flow] = level;
  for (uint32_t k = offset[flow]; k < offset[flow + 1]; ++k) {
    left_[link[k]] -= share[k] * level;
    weight_[link[k]] -= share[k];
    --num_open_[link[k]];
  }
}

void MaxMinProblem::freeze_link(uint32_t index, double level) {
  // Snap to the previous level when equal up to rounding.
  if (level > last_level_ * (1 + kSameLevel)) last_level_ = level;
  for (uint32_t k = link_offset_[index]; k < link_offset_[index + 1]; ++k) {
    const uint32_t flow = link_flows_[k];
    if (!is_frozen_[flow]) freeze(flow, last_level_);
  }
}

// Looks at every link in every round: the faster way for the small components that most changes touch.
void MaxMinProblem::fill_by_scanning() {
  const uint32_t num_flows = static_cast<uint32_t>(rate_cap.size());
  const uint32_t num_links = static_cast<uint32_t>(capacity.size());
  while (num_left_ > 0) {
    double level = std::numeric_limits<double>::infinity();
    uint32_t best = num_links + num_flows;
    for (uint32_t l = 0; l < num_links; ++l) {
      if (num_open_[l] == 0) continue;
      const double fair = std::max(left_[l], 0.0) / weight_[l];
      if (fair < level) {
        level = fair;
        best = l;
      }
    }
    for (uint32_t f = 0; f < num_flows; ++f) {
      if (is_frozen_[f] || !(rate_cap[f] < level)) continue;
      level = rate_cap[f];
      best = num_links + f;
    }
    if (best >= num_links + num_flows) return;  // flows without links or caps
    if (best < num_links) {
      freeze_link(best, level);
    } else {
      freeze(best - num_links, level);
    }
  }
}

// The least entry has risen to `level`: moves it down to where it belongs.
void MaxMinProblem::lower_top(double level) {
  const std::pair<double, uint32_t> top = {level, heap_.front().second};
  size_t hole = 0;
  for (size_t child = 1; child < heap_.size(); child = 2 * hole + 1) {
    if (child + 1 < heap_.size() && heap_[child + 1] < heap_[child]) ++child;
    if (!(heap_[child] < top)) break;
    heap_[hole] = heap_[child];
    hole = child;
  }
  heap_[hole] = top;
}

// A link's level only rises while others fill, so a stale heap entry is a lower bound and is pushed back.
void MaxMinProblem::fill_by_heap() {
  const uint32_t num_flows = static_cast<uint32_t>(rate_cap.size());
  const uint32_t num_links = static_cast<uint32_t>(capacity.size());
  heap_.clear();
  for (uint32_t l = 0; l < num_links; ++l) {
    if (num_open_[l] > 0) heap_.emplace_back(left_[l] / weight_[l], l);
  }
  for (uint32_t f = 0; f < num_flows; ++f) {
    if (rate_cap[f] < 1e300) heap_.emplace_back(rate_cap[f], num_links + f);
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  while (num_left_ > 0 && !heap_.empty()) {
    const auto [level, index] = heap_.front();
    const bool is_link = index < num_links;
    if (is_link && num_open_[index] > 0) {
      const double current = std::max(left_[index], 0.0) / weight_[index];
      if (current > level * (1 + kSameLevel)) {
        lower_top(current);
        continue;
      }
      freeze_link(index, level);
    } else if (!is_link && !is_frozen_[index - num_links]) {
      freeze(index - num_links, rate_cap[index - num_links]);
    }
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    heap_.pop_back();
  }
}

void MaxMinProblem::solve() {
  index_links();
  rate.assign(rate_cap.size(), 0);
  is_frozen_.assign(rate_cap.size(), 0);
  num_left_ = static_cast<uint32_t>(rate_cap.size());
  last_level_ = 0;
  if (capacity.size() <= kScanLinks) {
    fill_by_scanning();
  } else {
    fill_by_heap();
  }
  for (size_t l = 0; l < capacity.size(); ++l) {
    ROSTAM_CHECK(left_[l] >= -kCapacitySlack * capacity[l] - 1e-6,
                 "a link carries " << capacity[l] - left_[l] << " bytes/s, above its capacity " << capacity[l]);
  }
}

}  // namespace rostam::flow
