// MinimalPaths: the minimal next hops towards one destination at a time, from the fabric's distance function.
// After failures distances come from breadth-first searches, kept for the latest destinations only.
// A walk is at a place: a vertex in a phase (fabric::PathRule), the vertex itself where there is one phase only.
// Walks by another rule than the fabric's are searched alike.
// Example: paths.aim(dst); paths.next_hops(paths.start(src), hops).size();
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fabric/fabric.h"
#include "routing/route.h"

namespace rostam::routing {

class MinimalPaths {
 public:
  explicit MinimalPaths(std::shared_ptr<const fabric::Fabric> fabric);
  // The shortest of the walks that `rule` allows.
  MinimalPaths(std::shared_ptr<const fabric::Fabric> fabric, std::shared_ptr<const fabric::PathRule> rule);

  const fabric::Fabric& fabric() const { return *fabric_; }

  // Makes accelerator `dst` the destination of the calls below. Cost: O(1), or a search after failures.
  void aim(int32_t dst);
  // The same for any vertex that forwards, on the way of walks that go on from there. Cost: a search, kept as above.
  void aim_at_vertex(int32_t vertex);

  int32_t num_places() const { return fabric_->num_vertices() * num_phases_; }
  // Where walks from a vertex start: in the rule's detour phase if there is no other.
  int32_t start(int32_t src) const { return src * num_phases_ + (is_detour(src) ? detour_phase_ : 0); }
  bool is_detour(int32_t src) const {
    return detour_phase_ >= 0 && distance(src * num_phases_) >= fabric::kUnreachable;
  }
  int32_t end() const { return dst_ * num_phases_; }  // in whatever phase a walk ends
  int32_t vertex_of(int32_t place) const { return num_phases_ == 1 ? place : place / num_phases_; }
  int32_t phase_of(int32_t place) const { return num_phases_ == 1 ? 0 : place % num_phases_; }

  // Behind a hop that is allowed at a place, also of the last one, which leads to end().
  int32_t phase_behind(int32_t place, int32_t link) const {
    return rule() == nullptr ? 0 : rule()->next_phase(phase_of(place), fabric_->links()[static_cast<size_t>(link)]);
  }

  // The most phases in which walks may cross one link to a vertex that forwards.
  int32_t num_virtual_channels() const;
  // Puts for the phases behind a link (Steps::Hop::channel) their numbers among those that walks may have behind it.
  // REQUIRES: links of the steps are the fabric's.
  void number_channels(Steps& steps) const;
  // The number of one phase behind a link.
  int32_t number_of(int32_t link, int32_t phase) const;

  // Hops from a place to the destination, kUnreachable where none are left. In the closed form an
  // accelerator that failed counts as if it worked: see check_pair.
  int32_t distance(int32_t place) const {
    return row_ != nullptr ? (*row_)[static_cast<size_t>(place)] : function_->distance(place, dst_);
  }

  // The hops out of a place that lie on minimal paths; their `neighbour` is the place they lead to. They stand in the
  // fabric, or in `hops`, what was there before being lost.
  // REQUIRES: place != end(). Cost: O(log degree) where the fabric knows their range, else O(degree).
  fabric::HopSpan next_hops(int32_t place, std::vector<fabric::Hop>& hops) const;

  // Throws: NoRouteError naming the pair if `src` cannot reach the destination.
  void check_pair(int32_t src) const;

 private:
  using Row = std::vector<int32_t>;
  const fabric::PathRule* rule() const { return rule_ != nullptr ? rule_.get() : fabric_->path_rule(); }
  const Row* search(int32_t dst);
  void rank_phases() const;
  void append_allowed_hops(int32_t place, std::vector<fabric::Hop>& hops) const;

  std::shared_ptr<const fabric::Fabric> fabric_;
  std::shared_ptr<const fabric::PathRule> rule_;  // null: the fabric's own
  const fabric::DistanceFunction* function_;      // null: search
  int32_t num_phases_, detour_phase_;
  int32_t dst_ = -1;
  const Row* row_ = nullptr;            // of dst_, when searched
  mutable std::vector<int16_t> ranks_;  // of phases behind each link; empty: not asked for yet
  mutable int32_t most_channels_ = 1;
  size_t max_rows_ = 1;
  std::list<std::pair<int32_t, Row>> rows_;  // latest first
  std::unordered_map<int32_t, std::list<std::pair<int32_t, Row>>::iterator> row_of_;
};

}  // namespace rostam::routing
