#include "flow/max_min.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "sim/errors.h"
#include "sim/interrupt.h"

namespace rostam::flow {

namespace {

// Levels closer than this are one level: symmetric links must not drift apart by the order of subtraction.
constexpr double kSameLevel = 1e-12;
constexpr double kCapacitySlack = 1e-9;
constexpr double kLoose = 1e-9;  // a link left this much short of full is out of reach of rounding
// Problems up to this size are scanned in every round, larger ones use a heap.
constexpr size_t kScanLinks = 48, kScanFlows = 192;

}  // namespace

void MaxMinProblem::clear() {
  capacity.clear();
  offset.assign(1, 0);
  link.clear();
  share.clear();
  rate_cap.clear();
  rate.clear();
  weight_.clear();
  num_flows_.clear();
}

uint32_t MaxMinProblem::add_link(double bytes_per_s) {
  capacity.push_back(bytes_per_s);
  weight_.emplace_back();
  num_flows_.push_back(0);
  return static_cast<uint32_t>(capacity.size() - 1);
}

void MaxMinProblem::add_hop(uint32_t index, double hop_share) {
  weight_[index].add(hop_share);
  ++num_flows_[index];
  link.push_back(index);
  share.push_back(hop_share);
  ++offset.back();
}

// The level at which the link would be full if its open flows were raised to it.
double MaxMinProblem::level_of(uint32_t index) {
  OpenLink& open = open_[index];
  if (open.is_level_known) return open.level;
  open.level = std::max(capacity[index] - open.used.value(), 0.0) / open.weight.value();
  open.is_level_known = true;
  return open.level;
}

void MaxMinProblem::freeze(uint32_t flow, double level) {
  is_frozen_[flow] = 1;
  --num_left_;
  rate[flow] = level;
  for (uint32_t k = offset[flow]; k < offset[flow + 1]; ++k) {
    OpenLink& open = open_[link[k]];
    open.used.add(share[k] * level);
    open.fastest = std::max(open.fastest, level);
    if (open.is_loose) continue;
    open.weight.subtract(share[k]);
    --open.num_open;
    open.is_level_known = false;
  }
}

// The previous level when equal up to rounding.
double MaxMinProblem::snap(double level) {
  if (level > last_level_ * (1 + kSameLevel)) last_level_ = level;
  return last_level_;
}

void MaxMinProblem::freeze_link(uint32_t index, double level) {
  poll_interrupt();
  level = snap(level);
  for (uint32_t k = first_[index]; k < first_[index + 1]; ++k) {
    if (!is_frozen_[flows_[k]]) freeze(flows_[k], level);
  }
}

// Lists the flows of each link one behind another: in large problems a way from hop to hop would lead all over memory.
void MaxMinProblem::list_flows() {
  first_.resize(num_flows_.size() + 1);
  uint32_t end = 0;
  for (size_t l = 0; l < num_flows_.size(); ++l) {
    first_[l] = end;  // where its next flow goes, until all are there
    end += num_flows_[l];
  }
  flows_.resize(end);
  for (uint32_t f = 0; f < rate_cap.size(); ++f) {
    for (uint32_t k = offset[f]; k < offset[f + 1]; ++k) flows_[first_[link[k]]++] = f;
  }
  for (size_t l = num_flows_.size(); l > 0; --l) first_[l] = first_[l - 1];
  first_[0] = 0;
}

// Looks at every link and flow in every round: the faster way for the small components that most changes touch.
void MaxMinProblem::fill_by_scanning() {
  const uint32_t num_flows = static_cast<uint32_t>(rate_cap.size());
  const uint32_t num_links = static_cast<uint32_t>(capacity.size());
  while (num_left_ > 0) {
    double level = std::numeric_limits<double>::infinity();
    uint32_t best = num_links + num_flows;
    for (uint32_t l = 0; l < num_links; ++l) {
      if (open_[l].num_open == 0) continue;
      const double fair = level_of(l);
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

// Finds the links that fill whatever happens to others: all but those of a single flow, which are caps on it, and those
// that even their flows' highest rates leave short of full. Most links of a region are of these two kinds.
void MaxMinProblem::bound_rates() {
  const size_t num_flows = rate_cap.size();
  most_ = rate_cap;
  most_load_.assign(capacity.size(), 0);
  private_level_.assign(num_flows, std::numeric_limits<double>::infinity());
  for (size_t f = 0; f < num_flows; ++f) {
    double most = rate_cap[f];
    for (uint32_t k = offset[f]; k < offset[f + 1]; ++k) {
      if (capacity[link[k]] < most * share[k]) most = capacity[link[k]] / share[k];
    }
    most_[f] = most;
    for (uint32_t k = offset[f]; k < offset[f + 1]; ++k) most_load_[link[k]] += share[k] * most;
  }
  for (uint32_t l = 0; l < capacity.size(); ++l) {
    const bool is_private = open_[l].num_open == 1;
    open_[l].is_loose = is_private || most_load_[l] < capacity[l] * (1 - kLoose);
    if (!is_private) continue;
    double& level = private_level_[flows_[first_[l]]];
    level = std::min(level, level_of(l));
  }
}

// A link's level only rises while others fill, so a stale heap entry is a lower bound and is pushed back.
void MaxMinProblem::fill_by_heap() {
  const uint32_t num_flows = static_cast<uint32_t>(rate_cap.size());
  const uint32_t num_links = static_cast<uint32_t>(capacity.size());
  bound_rates();
  heap_.clear();
  for (uint32_t l = 0; l < num_links; ++l) {
    if (!open_[l].is_loose && open_[l].num_open > 0) heap_.emplace_back(level_of(l), l);
  }
  for (uint32_t f = 0; f < num_flows; ++f) {
    const double least = std::min(rate_cap[f], private_level_[f]);
    if (least < 1e300) heap_.emplace_back(least, num_links + f);
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  while (num_left_ > 0 && !heap_.empty()) {
    const auto [level, index] = heap_.front();
    const bool is_link = index < num_links;
    if (is_link && open_[index].num_open > 0) {
      const double current = level_of(index);
      if (current > level * (1 + kSameLevel)) {
        lower_top(current);
        continue;
      }
      freeze_link(index, level);
    } else if (!is_link && !is_frozen_[index - num_links]) {
      const uint32_t flow = index - num_links;
      freeze(flow, private_level_[flow] <= rate_cap[flow] ? snap(level) : level);
    }
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    heap_.pop_back();
  }
}

void MaxMinProblem::solve() {
  open_.resize(capacity.size());
  for (size_t l = 0; l < capacity.size(); ++l) {
    open_[l] = OpenLink();
    open_[l].weight = weight_[l];
    open_[l].num_open = num_flows_[l];
  }
  list_flows();
  rate.assign(rate_cap.size(), 0);
  is_frozen_.assign(rate_cap.size(), 0);
  num_left_ = static_cast<uint32_t>(rate_cap.size());
  last_level_ = 0;
  if (capacity.size() <= kScanLinks && rate_cap.size() <= kScanFlows) {
    fill_by_scanning();
  } else {
    fill_by_heap();
  }
  for (size_t l = 0; l < capacity.size(); ++l) {
    const double used = open_[l].used.value();
    ROSTAM_CHECK(used <= capacity[l] * (1 + kCapacitySlack) + 1e-6,
                 "a link carries " << used << " bytes/s, above its capacity " << capacity[l]);
  }
}

}  // namespace rostam::flow
