// LinkTable: the links of a system as engines see them, by id. An engine link is one directed link of the fabric, a
// bundle of equal ones, or, in a folded system, one that stands for a class.
// Example: LinkTable(routes.links())[0].bytes_per_s; LinkTable({1e9, 1e9}) for two links with nothing known.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "routing/engine_links.h"
#include "routing/route_table.h"
#include "sim/sim_time.h"

namespace rostam::network {

struct EngineLink {
  double bytes_per_s = 0;
  int32_t link_class = 0;  // of the fabric's links: what a protocol's share and hop cost are looked up by
  SimTime hop_cost;        // that a protocol pays per step over this link, besides the route's latency
  // For engines that walk packets; -1 and 0 else. Vertices are those of the link's plane.
  int32_t src = -1, dst = -1;
  SimTime latency = SimTime::zero();          // of the link
  SimTime forward_latency = SimTime::zero();  // of the vertex behind it, for what goes on from there
  bool is_exit = false;                       // that vertex passes nothing on: packets on the link are at their end
};

// Names of the vertices of a plane: "accelerator 3", "switch 0", or "vertex 9" for others.
struct VertexNames {
  int32_t num_accelerators = 0, num_switches = 0;
  std::string operator()(int32_t vertex) const;
};

class LinkTable {
 public:
  LinkTable() = default;
  // Links of class 0 that stand for no fabric link. Units: [bytes/s].
  explicit LinkTable(const std::vector<double>& capacities);
  // The links of a route table.
  explicit LinkTable(const routing::EngineLinks& links);
  // The same with all that packets need to know of them. REQUIRES: no bundles.
  // Throws: ConfigError for bundles.
  static LinkTable for_packets(const routing::RouteTable& routes, bool may_fail);

  int32_t size() const { return static_cast<int32_t>(links_.size()); }
  const EngineLink& operator[](int32_t link) const { return links_[static_cast<size_t>(link)]; }

  // The fabric links (ids) that an engine link stands for; none in a folded system.
  routing::IdSpan members(int32_t link) const { return members_[static_cast<size_t>(link)]; }

  // Classes of planes that differ; 1 where nothing is split over lanes.
  int32_t num_plane_classes() const { return num_plane_classes_; }

  // The most virtual channels that paths take on one link; 1 unless for packets.
  int32_t num_virtual_channels() const { return num_virtual_channels_; }

  // Whether paths may take more after failures that may come.
  bool may_take_more_channels() const { return may_take_more_channels_; }

  // Of the vertices that links name.
  const VertexNames& names() const { return names_; }

  // Whether messages are divided over the paths of their routes (routing::Route::is_adaptive).
  bool is_adaptive() const { return is_adaptive_; }

  // Adds a link; returns its id.
  int32_t add(const EngineLink& link, routing::IdSpan members = {});

 private:
  int32_t num_plane_classes_ = 1;
  int32_t num_virtual_channels_ = 1;
  bool may_take_more_channels_ = false;
  VertexNames names_;
  bool is_adaptive_ = false;
  std::vector<EngineLink> links_;
  routing::IdLists members_;
};

}  // namespace rostam::network
