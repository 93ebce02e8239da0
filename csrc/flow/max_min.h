// Weighted max-min fair rates by progressive filling: raise all rates together, freeze the flows of the link that
// fills first, repeat. Works on one connected component at a time.
// Invariant after solve(): each flow is at its cap or crosses a saturated link on which no rate is larger.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace rostam::flow {

// Flow f crosses links[offset[f] .. offset[f + 1]) with shares; link l has `capacity[l]`.
struct MaxMinProblem {
  std::vector<double> capacity;  // per link [bytes/s]
  std::vector<uint32_t> offset;  // per flow + 1
  std::vector<uint32_t> link;    // per (flow, hop)
  std::vector<double> share;     // per (flow, hop): fraction of the flow's rate on that link
  std::vector<double> rate_cap;  // per flow [bytes/s], may be infinite
  std::vector<double> rate;      // result, per flow [bytes/s]

  void clear();
  // Appends a flow without hops; add_hop() extends the last flow.
  void add_flow(double cap) {
    offset.push_back(static_cast<uint32_t>(link.size()));
    rate_cap.push_back(cap);
  }
  void add_hop(uint32_t link_index, double hop_share) {
    link.push_back(link_index);
    share.push_back(hop_share);
    ++offset.back();
  }

  // Fills `rate`. Throws: InternalError if a link ends above capacity by more than 1e-9.
  // Cost: O(hops log links).
  void solve();

 private:
  void index_links();
  void fill_by_scanning();
  void fill_by_heap();
  void lower_top(double level);
  void freeze_link(uint32_t index, double level);
  void freeze(uint32_t flow, double level);

  std::vector<double> left_;        // capacity not yet given away
  std::vector<double> weight_;      // sum of shares of flows not yet frozen
  std::vector<uint32_t> num_open_;  // flows not yet frozen, per link
  std::vector<uint8_t> is_frozen_;
  double last_level_ = 0;
  uint32_t num_left_ = 0;              // flows not yet frozen
  std::vector<uint32_t> link_offset_;  // CSR link -> flows
  std::vector<uint32_t> link_flows_;
  std::vector<uint32_t> next_;  // scratch of index_links()
  std::vector<std::pair<double, uint32_t>> heap_;
};

}  // namespace rostam::flow
