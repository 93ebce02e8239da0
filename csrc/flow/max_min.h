// Weighted max-min fair rates by progressive filling: raise all rates together, freeze the flows of the link that
// fills first, repeat. Flows may be added between two solves, which start anew.
// Invariant after solve(): each flow is at its cap or crosses a saturated link on which no rate is larger. Sums over
// flows are exact (exact_sum.h), so that rates do not depend on the order in which flows were added.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "flow/exact_sum.h"

namespace rostam::flow {

// Flow f crosses links[offset[f] .. offset[f + 1]) with shares; link l has `capacity[l]`.
struct MaxMinProblem {
  std::vector<double> capacity;  // per link [bytes/s], for these flows; may change between solves
  std::vector<uint32_t> offset;  // per flow + 1
  std::vector<uint32_t> link;    // per (flow, hop)
  std::vector<double> share;     // per (flow, hop): fraction of the flow's rate on that link
  std::vector<double> rate_cap;  // per flow [bytes/s], may be infinite
  std::vector<double> rate;      // result, per flow [bytes/s]

  void clear();
  // Returns its index.
  uint32_t add_link(double bytes_per_s);
  // Appends a flow without hops; add_hop() extends the last flow.
  void add_flow(double cap) {
    offset.push_back(static_cast<uint32_t>(link.size()));
    rate_cap.push_back(cap);
  }
  void add_hop(uint32_t link_index, double hop_share);

  // Fills `rate`. Throws: InternalError if a link ends above capacity by more than 1e-9.
  // Cost: O(hops log links).
  void solve();
  // Of the last solve: what the flows put on a link, and the fastest of them.
  const RateSum& load(uint32_t index) const { return open_[index].used; }
  double fastest(uint32_t index) const { return open_[index].fastest; }

 private:
  struct OpenLink {  // the rest of a link while flows are frozen
    RateSum used;
    ShareSum weight;  // of flows not yet frozen
    double level = 0;
    double fastest = 0;
    uint32_t num_open = 0;  // flows not yet frozen
    bool is_level_known = false;
    bool is_loose = false;  // it cannot be a bottleneck of several flows: its weight and level are not kept
  };
  double level_of(uint32_t index);
  void list_flows();
  void fill_by_scanning();
  void bound_rates();
  void fill_by_heap();
  void lower_top(double level);
  double snap(double level);
  void freeze_link(uint32_t index, double level);
  void freeze(uint32_t flow, double level);

  // Of all flows: kept from solve to solve.
  std::vector<ShareSum> weight_;     // per link
  std::vector<uint32_t> num_flows_;  // per link
  // Of a solve. Link l is crossed by flows_[first_[l] .. first_[l + 1]).
  std::vector<uint32_t> first_;
  std::vector<uint32_t> flows_;
  std::vector<OpenLink> open_;
  std::vector<uint8_t> is_frozen_;
  std::vector<double> most_;           // per flow: no more than this alone on each of its links
  std::vector<double> most_load_;      // per link, with all flows at that
  std::vector<double> private_level_;  // per flow: of the links that it has for itself
  double last_level_ = 0;
  uint32_t num_left_ = 0;  // flows not yet frozen
  std::vector<std::pair<double, uint32_t>> heap_;
};

}  // namespace rostam::flow
