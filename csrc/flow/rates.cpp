// FlowNetwork: which rates change when flows come and go.
//
// A rate vector is max-min fair exactly if every flow runs at its peak or has a bottleneck: a full link on which no
// flow is faster. So a change is solved for the flows that lose their bottleneck by it, the others holding their rates,
// and the region grows by the flows whose bottleneck that spoils (or who take more than their share of one) until none
// is left. The result is the max-min vector of the whole; the work follows the flows whose rates change, not the
// connected component: a flow that ends leaves those alone whose bottlenecks it did not cross.
//
// A flow over many links has a guard: a rate that it does not pass until the guard is lifted. A link that the guards of
// its flows do not fill can be no bottleneck and is left out of every problem; where a solved rate passes its flow's
// guard, the guard is lifted, and if that lets a link fill, the region is solved again with it.
//
// Sums over flows are exact (exact_sum.h) and know no history: a rate that differs in its last bit ends a message a
// picosecond earlier, and messages that compete amplify that without bound.
#include <algorithm>
#include <limits>

#include "flow/flow_network.h"

namespace rostam::flow {

namespace {

constexpr double kCapacitySlack = 1e-9;
constexpr double kEqual = 1e-11;  // loads and rates closer than this are equal

// Guards follow rates that leave this band below them; wide enough that most changes of rates stay within.
constexpr double kGuardAbove = 1.25, kGuardTooHigh = 2;

bool is_below(double value, double bound) { return value < bound * (1 - kEqual); }

}  // namespace

bool FlowNetwork::is_free(uint32_t id) const {
  for (const routing::LinkShare& hop : routes_[flows_[id].route].links) {
    if (may_bind(links_[hop.link])) return false;
  }
  return true;
}

// After it: every active flow has its max-min rate and a completion event that fits it.
void FlowNetwork::solve() {
  ++num_solves_;
  ++epoch_;
  clear_region();
  for (const uint32_t id : new_flows_) {
    if (flows_[id].is_active) include_new(id);
  }
  new_flows_.clear();
  for (const int32_t index : dirty_links_) {
    LinkState& link = links_[index];
    link.is_dirty = false;
    include_bound(index);
    if (!link.is_reset) continue;
    link.is_reset = false;
    for (const Member& member : crowds_[index].members) include(member.flow);
  }
  dirty_links_.clear();
  if (region_flows_.empty()) return;
  do {
    solve_region();
    while (raise_guards()) {
      rebuild_region();
      solve_region();
    }
  } while (grow_region());
  settle_region();
  lower_guards();
}

void FlowNetwork::clear_region() {
  region_flows_.clear();
  region_links_.clear();
  problem_.clear();
}

// A new flow, and those that it meets at their bottlenecks.
void FlowNetwork::include_new(uint32_t id) {
  if (is_free(id)) {
    set_rate(id, flows_[id].peak);
    return;
  }
  include(id);
  for (const routing::LinkShare& hop : routes_[flows_[id].route].links) include_bound(hop.link);
}

void FlowNetwork::include_bound(int32_t link) {
  for (const uint32_t id : bound_[link]) include(id);
}

void FlowNetwork::include(uint32_t id) {
  Pace& pace = paces_[id];
  if (pace.seen == epoch_) return;
  pace.seen = epoch_;
  region_flows_.push_back(id);
  fetch_links(id, false);
  problem_.add_flow(flows_[id].peak);
  for (const routing::LinkShare& hop : routes_[flows_[id].route].links) {
    LinkState& link = links_[hop.link];
    if (!link.is_binding) continue;
    if (link.seen != epoch_) {
      link.seen = epoch_;
      link.local = problem_.add_link(link.capacity);
      region_links_.emplace_back();
      region_links_.back().link = hop.link;
      region_links_.back().outside = link.load;
    }
    RegionLink& here = region_links_[link.local];
    here.outside.subtract(pace.rate * hop.share);
    ++here.num_members;
    if (pace.bottleneck == hop.link) ++here.num_bound;
    problem_.add_hop(link.local, hop.share);
  }
}

// Max-min rates of the region's flows (into problem_.rate) on what the others leave of their binding links.
void FlowNetwork::solve_region() {
  for (size_t l = 0; l < region_links_.size(); ++l) {
    const RegionLink& here = region_links_[l];
    problem_.capacity[l] = std::max(0.0, links_[here.link].capacity - here.outside.value());
  }
  problem_.solve();
}

// Lifts the guards that the region's new rates pass. Returns whether a link became binding by that.
bool FlowNetwork::raise_guards() {
  const uint64_t before = num_bindings_;
  for (size_t k = 0; k < region_flows_.size(); ++k) {
    const uint32_t id = region_flows_[k];
    const double rate = problem_.rate[k];
    if (rate > paces_[id].guard) set_guard(id, std::max(rate, std::min(flows_[id].peak, rate * kGuardAbove)));
  }
  return num_bindings_ > before;
}

void FlowNetwork::lower_guards() {
  for (const uint32_t id : region_flows_) {
    const Pace& pace = paces_[id];
    if (pace.guard > pace.rate * kGuardTooHigh && is_guarded(id)) set_guard(id, pace.rate * kGuardAbove);
  }
}

// The same flows, with the links that bind them now.
void FlowNetwork::rebuild_region() {
  std::vector<uint32_t> flows;
  flows.swap(region_flows_);
  clear_region();
  ++epoch_;
  for (const uint32_t id : flows) include(id);
}

// Adds the flows outside that the region's new rates leave without a bottleneck, or that crowd one of its flows out of
// its own. Returns whether there were any.
bool FlowNetwork::grow_region() {
  sum_loads();
  const size_t num_before = region_flows_.size(), num_links = region_links_.size();
  bottlenecks_.assign(num_before, kNoLink);
  for (size_t k = 0; k < num_before; ++k) {
    if (is_below(problem_.rate[k], flows_[region_flows_[k]].peak)) find_bottleneck(k);
  }
  for (uint32_t l = 0; l < num_links; ++l) include_spoilt(l);
  return region_flows_.size() > num_before;
}

// A full link may be the bottleneck of its fastest flows; a link that is not full is of none.
void FlowNetwork::sum_loads() {
  for (uint32_t l = 0; l < region_links_.size(); ++l) {
    RegionLink& here = region_links_[l];
    here.load = here.outside;
    here.load.add(problem_.load(l));
    here.fastest = problem_.fastest(l);
    here.bound = std::numeric_limits<double>::infinity();
    if (is_below(here.load.value(), links_[here.link].capacity)) continue;
    here.bound = std::max(here.fastest, fastest_outside(l)) * (1 - kEqual);
  }
}

// A link's fastest flows are those whose bottleneck it is, if there are any.
double FlowNetwork::fastest_outside(uint32_t local) const {
  const RegionLink& here = region_links_[local];
  const Crowd& crowd = crowds_[here.link];
  if (here.num_members == crowd.members.size()) return 0;
  if (here.num_bound < bound_[here.link].size()) return links_[here.link].bound_rate;
  double fastest = 0;
  for (const Member& member : crowd.members) {
    const Pace& pace = paces_[member.flow];
    if (pace.seen != epoch_) fastest = std::max(fastest, pace.rate);
  }
  return fastest;
}

// Finds the full link on which the region's k-th flow is among the fastest; where faster flows outside are in the
// way, they join the region.
void FlowNetwork::find_bottleneck(size_t k) {
  const uint32_t first = problem_.offset[k], end = problem_.offset[k + 1];
  const double rate = problem_.rate[k];
  for (uint32_t h = first; h < end; ++h) {
    const RegionLink& here = region_links_[problem_.link[h]];
    if (rate < here.bound) continue;
    bottlenecks_[k] = here.link;
    return;
  }
  for (uint32_t h = first; h < end; ++h) {
    const RegionLink& here = region_links_[problem_.link[h]];
    if (here.bound == std::numeric_limits<double>::infinity()) continue;
    bottlenecks_[k] = here.link;  // holds if no flow outside is faster except for rounding
    for (const Member& member : crowds_[bottlenecks_[k]].members) {
      const Pace& pace = paces_[member.flow];
      if (pace.seen != epoch_ && is_below(rate, pace.rate)) include(member.flow);
    }
  }
}

// The flows outside whose bottleneck the link no longer is join the region.
void FlowNetwork::include_spoilt(uint32_t local) {
  const double bound = region_links_[local].bound;
  const int32_t link = region_links_[local].link;
  if (region_links_[local].num_bound == bound_[link].size() || links_[link].bound_rate >= bound) return;
  for (const uint32_t id : bound_[link]) {
    if (paces_[id].rate < bound) include(id);
  }
}

// The region's new rates hold.
void FlowNetwork::settle_region() {
  for (const RegionLink& here : region_links_) {
    LinkState& link = links_[here.link];
    link.load = here.load;
    const double load = here.load.value();
    ROSTAM_CHECK(load <= link.capacity * (1 + kCapacitySlack) + 1e-6,
                 "link " << here.link << " carries " << load << " bytes/s, above its " << link.capacity);
  }
  order_region();
  for (const auto& [name, k] : named_) {
    set_bottleneck(region_flows_[k], bottlenecks_[k]);
    if (bottlenecks_[k] != kNoLink) links_[bottlenecks_[k]].bound_rate = problem_.rate[k];
    set_rate(region_flows_[k], problem_.rate[k]);
  }
}

// By the names of routes: flows that end together do so in the order in which they got their rates.
void FlowNetwork::order_region() {
  named_.clear();
  for (uint32_t k = 0; k < region_flows_.size(); ++k)
    named_.emplace_back(routes_[flows_[region_flows_[k]].route].name, k);
  if (!std::is_sorted(named_.begin(), named_.end())) std::sort(named_.begin(), named_.end());
}

void FlowNetwork::set_bottleneck(uint32_t id, int32_t link) {
  Pace& pace = paces_[id];
  if (pace.bottleneck == link) return;
  if (pace.bottleneck != kNoLink) {
    FewList<uint32_t, 4>& bound = bound_[pace.bottleneck];
    bound[pace.place] = bound.back();
    paces_[bound[pace.place]].place = pace.place;
    bound.pop_back();
  }
  pace.bottleneck = link;
  if (link == kNoLink) return;
  pace.place = bound_[link].size();
  bound_[link].push_back(id);
}

}  // namespace rostam::flow
