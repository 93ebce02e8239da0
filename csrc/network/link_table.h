// LinkTable: the links of a system as engines see them, by id. An engine link is one directed link of the fabric, a
// bundle of equal ones, or, in a folded system, one that stands for a class.
// Example: LinkTable(routes.links())[0].bytes_per_s; LinkTable({1e9, 1e9}) for two links with nothing known.
#pragma once

#include <cstdint>
#include <vector>

#include "routing/engine_links.h"
#include "sim/sim_time.h"

namespace rostam::network {

struct EngineLink {
  double bytes_per_s = 0;
  int32_t link_class = 0;  // of the fabric's links: what a protocol's share and hop cost are looked up by
  SimTime hop_cost;        // that a protocol pays per step over this link, besides the route's latency
};

class LinkTable {
 public:
  LinkTable() = default;
  // Links of class 0 that stand for no fabric link. Units: [bytes/s].
  explicit LinkTable(const std::vector<double>& capacities);
  // The links of a route table.
  explicit LinkTable(const routing::EngineLinks& links);

  int32_t size() const { return static_cast<int32_t>(links_.size()); }
  const EngineLink& operator[](int32_t link) const { return links_[static_cast<size_t>(link)]; }

  // The fabric links (ids) that an engine link stands for; none in a folded system.
  routing::IdSpan members(int32_t link) const { return members_[static_cast<size_t>(link)]; }

  // Classes of planes that differ; 1 where nothing is split over lanes.
  int32_t num_plane_classes() const { return num_plane_classes_; }

  // Whether messages are divided over the paths of their routes (routing::Route::is_adaptive).
  bool is_adaptive() const { return is_adaptive_; }

  // Adds a link; returns its id.
  int32_t add(const EngineLink& link, routing::IdSpan members = {});

 private:
  int32_t num_plane_classes_ = 1;
  bool is_adaptive_ = false;
  std::vector<EngineLink> links_;
  routing::IdLists members_;
};

}  // namespace rostam::network
