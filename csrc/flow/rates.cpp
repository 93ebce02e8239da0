// FlowNetwork: which rates change when flows come and go.
//
// A rate vector is max-min fair exactly if every flow runs at its peak or has a bottleneck: a full link on which no
// flow is faster. So a change is solved for the flows next to it only, the others holding their rates, and the region
// grows by the flows whose bottleneck that spoils (or who take more than their share of one) until none is left. The
// result is the max-min vector of the whole; the work follows the change, not the connected component.
//
// Sums over flows go by the names of their routes, not by history: a rate that differs in its last bit ends a message a
// picosecond earlier, and messages that compete amplify that without bound.
#include <algorithm>
#include <limits>

#include "flow/flow_network.h"

namespace rostam::flow {

namespace {

constexpr double kPeakSlack = 1e-10;  // sums of peaks may be off by rounding; capacity is checked to 1e-9
constexpr double kCapacitySlack = 1e-9;
constexpr double kEqual = 1e-11;  // loads and rates closer than this are equal

bool is_below(double value, double bound) { return value < bound * (1 - kEqual); }

}  // namespace

bool FlowNetwork::is_binding(const LinkState& link) const { return link.peak_load > link.capacity * (1 + kPeakSlack); }

bool FlowNetwork::is_free(uint32_t id) const {
  for (const routing::LinkShare& hop : routes_[flows_[id].route].links) {
    if (is_binding(links_[hop.link])) return false;
  }
  return true;
}

// After it: every active flow has its max-min rate and a completion event that fits it.
void FlowNetwork::solve() {
  is_solve_pending_ = false;
  ++num_solves_;
  ++epoch_;
  region_flows_.clear();
  neighbours_.clear();
  for (const uint32_t id : new_flows_) {
    if (!flows_[id].is_active) continue;
    if (is_free(id)) {
      paces_[id].bottleneck = kNoLink;
      set_rate(id, flows_[id].peak);
      continue;
    }
    for (const routing::LinkShare& hop : routes_[flows_[id].route].links) {
      if (is_binding(links_[hop.link])) include_members(hop.link);
    }
  }
  new_flows_.clear();
  for (const int32_t link : dirty_links_) {
    links_[link].is_dirty = false;
    include_members(link);
  }
  dirty_links_.clear();
  if (region_flows_.empty()) return;
  do {
    solve_region();
  } while (grow_region());
  for (size_t l = 0; l < region_links_.size(); ++l) {
    const double capacity = links_[region_links_[l]].capacity;
    ROSTAM_CHECK(load_[l] <= capacity * (1 + kCapacitySlack) + 1e-6,
                 "link " << region_links_[l] << " carries " << load_[l] << " bytes/s, above its " << capacity);
  }
  for (size_t k = 0; k < region_flows_.size(); ++k) {
    paces_[region_flows_[k]].bottleneck = bottlenecks_[k];
    set_rate(region_flows_[k], problem_.rate[k]);
  }
}

void FlowNetwork::include_members(int32_t link) {
  if (links_[link].included == epoch_) return;
  links_[link].included = epoch_;
  for (const Member& member : links_[link].members) include(member.flow);
}

bool FlowNetwork::include(uint32_t id) {
  if (paces_[id].seen == epoch_) return false;
  paces_[id].seen = epoch_;
  region_flows_.push_back(id);
  return true;
}

// Max-min rates of the region's flows (into problem_.rate) on what the others leave of their binding links.
void FlowNetwork::solve_region() {
  ++link_epoch_;
  region_links_.clear();
  problem_.clear();
  order_region();
  for (const uint32_t id : region_flows_) {
    problem_.add_flow(flows_[id].peak);
    for (const routing::LinkShare& hop : routes_[flows_[id].route].links) {
      LinkState& link = links_[hop.link];
      if (link.seen != link_epoch_) {
        if (!is_binding(link)) continue;
        link.seen = link_epoch_;
        link.local = static_cast<int32_t>(region_links_.size());
        region_links_.push_back(hop.link);
        problem_.capacity.push_back(link.capacity);
      }
      problem_.add_hop(static_cast<uint32_t>(link.local), hop.share);
    }
  }
  load_.assign(region_links_.size(), 0);
  fastest_.assign(region_links_.size(), 0);
  for (size_t l = 0; l < region_links_.size(); ++l) {
    LinkState& link = links_[region_links_[l]];
    if (link.summed != epoch_) sum_outside(link);
    load_[l] = link.outside_load;
    fastest_[l] = link.outside_fastest;
    problem_.capacity[l] = std::max(0.0, problem_.capacity[l] - link.outside_load);
  }
  problem_.solve();
}

// What the flows outside the region do to one of its links. Holds until one of them joins it.
void FlowNetwork::sum_outside(LinkState& link) {
  long double load = 0;  // rounded once, so that the order of the members hardly ever matters
  double fastest = 0;
  for (const Member& member : link.members) {
    Pace& pace = paces_[member.flow];
    if (pace.seen == epoch_) continue;
    load += pace.rate * member.share;
    fastest = std::max(fastest, pace.rate);
    if (pace.noticed == epoch_ || pace.bottleneck == kNoLink) continue;
    pace.noticed = epoch_;
    neighbours_.push_back(member.flow);
  }
  link.summed = epoch_;
  link.outside_load = static_cast<double>(load);
  link.outside_fastest = fastest;
}

// Orders the region's flows by the names of their routes.
void FlowNetwork::order_region() {
  named_.clear();
  for (const uint32_t id : region_flows_) named_.emplace_back(routes_[flows_[id].route].name, id);
  if (std::is_sorted(named_.begin(), named_.end())) return;
  std::sort(named_.begin(), named_.end());
  for (size_t k = 0; k < named_.size(); ++k) region_flows_[k] = named_[k].second;
}

// Adds the flows outside that the region's new rates leave without a bottleneck, or that crowd one of its flows out of
// its own. Returns whether there were any.
bool FlowNetwork::grow_region() {
  for (size_t k = 0; k < region_flows_.size(); ++k) {
    for (uint32_t h = problem_.offset[k]; h < problem_.offset[k + 1]; ++h) {
      load_[problem_.link[h]] += problem_.rate[k] * problem_.share[h];
      fastest_[problem_.link[h]] = std::max(fastest_[problem_.link[h]], problem_.rate[k]);
    }
  }
  bound_links();
  const size_t num_before = region_flows_.size();
  bottlenecks_.assign(num_before, kNoLink);
  for (size_t k = 0; k < num_before; ++k) {
    if (is_below(problem_.rate[k], flows_[region_flows_[k]].peak)) find_bottleneck(k);
  }
  size_t num_outside = 0;
  for (const uint32_t id : neighbours_) {
    const Pace& pace = paces_[id];
    if (pace.seen == epoch_) continue;
    neighbours_[num_outside++] = id;
    const LinkState& bottleneck = links_[pace.bottleneck];
    if (bottleneck.seen != link_epoch_) continue;  // no flow of the region is on it: as it was
    if (pace.rate < bound_[bottleneck.local]) include(id);
  }
  neighbours_.resize(num_outside);
  for (size_t k = num_before; k < region_flows_.size(); ++k) {
    for (const routing::LinkShare& hop : routes_[flows_[region_flows_[k]].route].links) links_[hop.link].summed = 0;
  }
  return region_flows_.size() > num_before;
}

// A full link may be the bottleneck of its fastest flows; a link that is not full is of none.
void FlowNetwork::bound_links() {
  bound_.resize(region_links_.size());
  for (size_t l = 0; l < region_links_.size(); ++l) {
    const bool is_full = !is_below(load_[l], links_[region_links_[l]].capacity);
    bound_[l] = is_full ? fastest_[l] * (1 - kEqual) : std::numeric_limits<double>::infinity();
  }
}

// Finds the full link on which the region's k-th flow is among the fastest; where faster flows outside are in the
// way, they join the region.
void FlowNetwork::find_bottleneck(size_t k) {
  for (uint32_t h = problem_.offset[k]; h < problem_.offset[k + 1]; ++h) {
    const uint32_t local = problem_.link[h];
    if (problem_.rate[k] < bound_[local]) continue;
    bottlenecks_[k] = region_links_[local];
    return;
  }
  for (uint32_t h = problem_.offset[k]; h < problem_.offset[k + 1]; ++h) {
    const uint32_t local = problem_.link[h];
    if (bound_[local] == std::numeric_limits<double>::infinity()) continue;
    bottlenecks_[k] = region_links_[local];  // holds if nobody outside is faster but for rounding
    for (const Member& member : links_[region_links_[local]].members) {
      const Pace& pace = paces_[member.flow];
      if (pace.seen != epoch_ && is_below(problem_.rate[k], pace.rate)) include(member.flow);
    }
  }
}

}  // namespace rostam::flow
