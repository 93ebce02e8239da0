// Dfsssp: forwarding tables by destination accelerator with one shortest path for each pair, balanced by counting the
// paths on every link as destinations are served one after the other; and virtual layers for these paths, so many that
// the channel dependencies of none form a circle. Source: Domke, Hoefler and Nagel, "Deadlock-Free Oblivious Routing
// for Arbitrary Topologies", IPDPS 2011, sections III (balanced single-source shortest paths) and IV (a circle loses
// the paths over the dependency that the fewest of them have, which go to the next layer); destinations in the order of
// their numbers and, among equal paths, the lowest neighbour: own.
//
// Example: Dfsssp tables(*fabric); tables.next(vertex, dst); tables.assign_layers()
#pragma once

#include <cstdint>
#include <vector>

#include "fabric/fabric.h"

namespace rostam::routing {

class Dfsssp {
 public:
  // Of what works. Throws: ConfigError for more entries than fit in memory. Cost: accelerators x links.
  explicit Dfsssp(const fabric::Fabric& fabric);

  // The link out of a vertex on the way to an accelerator, -1 where there is none.
  int32_t next(int32_t vertex, int32_t dst) const { return table_[index(vertex, dst)]; }

  // Gives every path a virtual layer, once. Throws: ConfigError for more links on all paths than fit in memory.
  // Cost: links on all paths, and a search of the dependencies for each circle that is broken.
  void assign_layers();
  // REQUIRES: assign_layers has been called.
  int32_t num_layers() const { return num_layers_; }
  // Of the path to `dst` from its first vertex that forwards.
  int32_t layer(int32_t entry, int32_t dst) const { return layer_[index(entry, dst)]; }

 private:
  size_t index(int32_t vertex, int32_t dst) const {
    return static_cast<size_t>(vertex) * static_cast<size_t>(num_accelerators_) + static_cast<size_t>(dst);
  }
  void serve(int32_t dst, std::vector<int64_t>& loads);

  const fabric::Fabric& fabric_;
  int32_t num_accelerators_;
  std::vector<int32_t> table_;
  std::vector<int16_t> layer_;
  int32_t num_layers_ = 0;
};

}  // namespace rostam::routing
