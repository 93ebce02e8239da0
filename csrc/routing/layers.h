// Layers: forwarding tables of all vertices that forward (switches; accelerators where they do), by destination, one
// table for each layer. Below they are switches, counted from 0 in the order of their vertices. Layer 0 has minimal
// paths. Every further layer gives each ordered pair of switches, in a drawn order, one almost-minimal path: of the
// shortest that are one to three cables longer than minimal the one whose cables carry the fewest paths so far, each
// switch that it would give a minimal path counted as a few more, since that switch has no other in the layer. A path
// fixes the next hop of all its switches towards its destination in that layer, so later paths must agree with it; a
// pair that gets none keeps the next hops there are, minimal ones where none is fixed. Nothing ever goes in circles.
// Source: Blach et al., "A High-Performance Design, Implementation, Deployment, and Evaluation of The Slim Fly
// Network", NSDI 2024, section 4; the order of pairs and of equal paths: own, from a fixed seed.
//
// Example: Layers(*fabric, 4).next(2, 0, 7)
#pragma once

#include <cstdint>
#include <vector>

#include "fabric/fabric.h"

namespace rostam::routing {

class Layers {
 public:
  // Of what works. Throws: ConfigError for more switches than tables fit in memory.
  // Cost: layers x pairs of switches x paths of a pair.
  Layers(const fabric::Fabric& fabric, int32_t num_layers);

  int32_t num_layers() const { return static_cast<int32_t>(tables_.size()); }
  int32_t num_switches() const { return num_switches_; }
  // The switch that a vertex is, -1 for accelerators that forward nothing; and back.
  int32_t switch_of(int32_t vertex) const { return switch_of_[static_cast<size_t>(vertex)]; }
  int32_t vertex_of(int32_t index) const { return vertices_[static_cast<size_t>(index)]; }
  // Cables between two switches on a minimal path, -1 without one.
  int32_t hops(int32_t at, int32_t to) const { return hops_[index(at, to)]; }
  // The switch after `at` on the way to switch `to`; -1 where there is none.
  int32_t next(int32_t layer, int32_t at, int32_t to) const {
    return tables_[static_cast<size_t>(layer)][index(at, to)];
  }
  // Cables of the longest path of any layer.
  int32_t longest_path() const;
  // The switches among neighbours, each once.
  std::vector<int32_t> switches_at(const fabric::HopSpan& hops) const;
  // Of the ordered pairs of these switches that are apart and joined, the share with more than one minimal next hop
  // from the first; 0 without pairs.
  double share_of_branching_pairs(const std::vector<int32_t>& ends) const;
  // Row-major (layer, at, to).
  std::vector<int32_t> flat() const;

 private:
  size_t index(int32_t at, int32_t to) const {
    return static_cast<size_t>(at) * static_cast<size_t>(num_switches_) + static_cast<size_t>(to);
  }
  void find_neighbours(const fabric::Fabric& fabric);
  void fill_minimal();
  void fill_layer(size_t layer, const std::vector<int32_t>& order);
  bool place_path(std::vector<int32_t>& table, int32_t from, int32_t to, int32_t length);
  void search(const std::vector<int32_t>& table, int32_t to, int32_t left, int64_t weight);
  int64_t& load(int32_t at, int32_t to) { return loads_[index(at, to)]; }

  int32_t num_switches_ = 0;
  std::vector<int32_t> vertices_, switch_of_;
  std::vector<std::vector<int32_t>> neighbours_, feeders_;  // switches that links lead to, and come from
  std::vector<int32_t> hops_;                               // between switches
  std::vector<std::vector<int32_t>> tables_;                // layer -> next switch
  std::vector<int64_t> loads_;                              // paths over each ordered pair of neighbours
  std::vector<int32_t> path_, best_;                        // of the search
  int64_t best_weight_ = 0;
  int32_t steps_left_ = 0;
};

}  // namespace rostam::routing
