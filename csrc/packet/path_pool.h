// PathPool: the paths of all routes, each part of them once. Steps (routing/route.h) become nodes whose hops are known
// by what they hold, so that routes towards one destination share all behind the place where they meet: memory grows
// with places x destinations, not with pairs x paths.
// Example: pool.add(route.steps, links, roots); pool.hop(pool.node(roots[0]).first_hop).next
#pragma once

#include <cstdint>
#include <vector>

#include "packet/links.h"
#include "routing/route.h"

namespace rostam::packet {

struct PathHop {
  uint32_t link = 0, channel = 0;
  uint32_t next = 0;  // node behind it
};

struct PathNode {
  uint32_t first_hop = 0, num_hops = 0;
  uint32_t num_optional = 0;  // of the hops, the first (routing::Steps)
  uint32_t turn = 0;          // of packets that take the hops in turn; it begins anywhere
  uint32_t num_links = 0;     // of the longest path from here, but for links where packets end
  int64_t latency_ps = 0;     // of the slowest one, without waiting, as fabrics have it
};

class PathPool {
 public:
  static constexpr uint32_t kEnd = 0;  // the node of all ends

  PathPool() : nodes_(1) {}

  PathNode& node(uint32_t id) { return nodes_[id]; }
  const PathNode& node(uint32_t id) const { return nodes_[id]; }
  const PathHop& hop(uint32_t id) const { return hops_[id]; }

  // Adds paths from vertex `src` to vertex `dst`; appends where each of their graphs begins. Throws: InternalError for
  // steps that do not lead from link to link, from one end to the other.
  void add(const routing::Steps& steps, int32_t src, int32_t dst, Links& links, std::vector<uint32_t>& roots);

  size_t num_nodes() const { return nodes_.size(); }
  // The hops that packets at a node depend on: those that are not optional, or all where there are no others.
  uint32_t first_required_hop(const PathNode& node) const {
    return node.first_hop + (node.num_optional < node.num_hops ? node.num_optional : 0);
  }

  // The links of all paths from these nodes, each once, nearest first.
  std::vector<int32_t> links_from(const std::vector<uint32_t>& roots) const;

 private:
  uint32_t intern(const Links& links, uint32_t num_optional);
  bool is_same(uint32_t node, uint32_t num_optional) const;
  void grow();

  std::vector<PathNode> nodes_;
  std::vector<PathHop> hops_;
  std::vector<uint32_t> table_;  // of nodes, by what their hops hold; a power of two of places, kEnd: free
  std::vector<PathHop> found_;   // hops of the node in work
  std::vector<uint32_t> ids_;    // of the steps in work
  std::vector<uint8_t> is_entered_;
};

}  // namespace rostam::packet
