#include "circuits/relay_loads.h"

#include <algorithm>

#include "sim/interrupt.h"

namespace rostam::circuits {

namespace {

struct Hop {
  int32_t end = 0;
  int32_t pair = 0;
};

class Spreader {
 public:
  Spreader(const Demand& demand, const std::vector<std::pair<int32_t, int32_t>>& joined)
      : loads_(joined.size(), 0),
        out_(static_cast<size_t>(demand.num_accelerators)),
        in_(out_.size()),
        held_(out_.size()) {
    for (size_t i = 0; i < joined.size(); ++i) {
      out_[joined[i].first].push_back({joined[i].second, static_cast<int32_t>(i)});
      in_[joined[i].second].push_back(joined[i].first);
    }
  }

  // Sends what is held to `end`. Returns whether all of it arrives.
  bool send_to(int32_t end) {
    poll_interrupt();
    distance_.assign(out_.size(), -1);
    distance_[end] = 0;
    order_.assign(1, end);
    for (size_t i = 0; i < order_.size(); ++i) {
      for (const int32_t before : in_[order_[i]]) {
        if (distance_[before] >= 0) continue;
        distance_[before] = distance_[order_[i]] + 1;
        order_.push_back(before);
      }
    }
    for (size_t i = order_.size(); i-- > 1;) pass_on(order_[i]);
    held_[end] = 0;
    return std::all_of(held_.begin(), held_.end(), [](double bytes) { return bytes == 0; });
  }

  double& held(int32_t accelerator) { return held_[accelerator]; }
  std::vector<double> loads() && { return std::move(loads_); }

 private:
  void pass_on(int32_t here) {
    if (held_[here] == 0) return;
    const auto is_nearer = [&](const Hop& hop) { return distance_[hop.end] == distance_[here] - 1; };
    const auto num_nearer = std::count_if(out_[here].begin(), out_[here].end(), is_nearer);
    const double part = held_[here] / static_cast<double>(num_nearer);
    for (const Hop& hop : out_[here]) {
      if (!is_nearer(hop)) continue;
      loads_[hop.pair] += part;
      held_[hop.end] += part;
    }
    held_[here] = 0;
  }

  std::vector<double> loads_;
  std::vector<std::vector<Hop>> out_;
  std::vector<std::vector<int32_t>> in_;
  std::vector<double> held_;
  std::vector<int32_t> distance_, order_;  // circuits to the end; nearest first
};

}  // namespace

std::vector<double> relay_loads(const Demand& demand, const std::vector<std::pair<int32_t, int32_t>>& joined) {
  Spreader spreader(demand, joined);
  std::vector<std::vector<size_t>> to(static_cast<size_t>(demand.num_accelerators));
  for (size_t i = 0; i < demand.dst.size(); ++i) {
    if (demand.num_bytes[i] > 0) to[demand.dst[i]].push_back(i);
  }
  for (int32_t end = 0; end < demand.num_accelerators; ++end) {
    for (const size_t i : to[end]) spreader.held(demand.src[i]) += demand.num_bytes[i];
    if (!to[end].empty() && !spreader.send_to(end)) return {};
  }
  return std::move(spreader).loads();
}

}  // namespace rostam::circuits
