// Tree: two or three levels of switches of one radix above a row of ports, each an accelerator's or a NIC's.
// Ports fill leaves consecutively or, with rails, port r of every server goes to a leaf of rail r of its unit, the
// servers that one leaf has ports for. In the last unit, if it has fewer, rails that together fit on a leaf share it.
// Two levels: leaf l's uplink u goes to spine (l leaf_up + u) mod spines. Three levels: leaf uplink u goes to switch u
// of its pod, whose uplinks go round-robin to the cores of group u, so every pod reaches every core.
// Packed pods instead have the fewest switches that hold their leaves' uplinks, leaf l's uplink u on the (l leaf_up +
// u) mod switches-th one, and there are the fewest cores that hold the uplinks of all, as many as they have down, which
// go round-robin to the cores. Every leaf reaches every switch of its pod and every pod, but a last smaller one, every
// core.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fabric/fabric.h"
#include "fabric/params.h"

namespace rostam::fabric {

// Ports of a leaf, and what is above leaves. num_spines: of two levels; 0: the fewest that hold all uplinks.
// pod_leaves: of packed pods on three levels; 0: pods are not packed.
struct TreeShape {
  int32_t leaf_down = 1, leaf_up = 1, radix = 2, levels = 2, num_spines = 0, pod_leaves = 0;
};

// As fat_tree's parameters have it.
TreeShape tree_shape(const Params& params);

// Counts of a tree, and the number of its first vertex on each level. On two levels the pod is the whole tree
// and its switches are the spines: the fewest that hold all uplinks if `num_spines` is 0.
struct Tree {
  // num_rails: ports of a server that go to leaves of their own; 1: ports fill leaves consecutively.
  // Throws: ConfigError for more leaves than the levels join.
  Tree(const TreeShape& shape, int32_t first_switch, int32_t num_ports, int32_t num_rails);

  int32_t num_ports, num_rails, leaf_down, leaf_up, radix;
  int32_t num_full_units = 0, last_rails_per_leaf = 1;  // with rails
  int32_t num_leaves = 0, leaves_per_pod = 0, num_pods = 1, pod_switches = 0;
  int32_t middle_up = 0;  // uplinks of a pod's switch
  int32_t cores_per_group = 0;
  bool is_packed = false;  // distances below then do not hold: some cores may not reach the last pod
  int32_t first_leaf = 0, first_middle = 0, first_core = 0, end = 0;

  int32_t leaf_of(int32_t port) const;
  int32_t pod_of_leaf(int32_t leaf) const { return leaf / leaves_per_pod; }
  int32_t pod_of_middle(int32_t vertex) const { return (vertex - first_middle) / pod_switches; }
  int32_t num_switches() const { return end - first_leaf; }
  // 0 for leaves, 1 for spines and pods' switches, 2 for cores.
  int32_t tier_of(int32_t vertex) const { return vertex < first_middle ? 0 : vertex < first_core ? 1 : 2; }
  // Links from one leaf to another.
  int32_t hops_between(int32_t leaf, int32_t other) const;

  // Links on a shortest path from a port, or from a switch, to a port.
  int32_t port_distance(int32_t from, int32_t port) const;
  int32_t switch_distance(int32_t vertex, int32_t port) const;
  // Between two ports that are farthest apart, one port if there is no other.
  int32_t diameter() const;

  // The neighbours first..last-1 of a switch on shortest paths to a port, which the leaf sees as `port_vertex`.
  void next_range(int32_t vertex, int32_t port, int32_t port_vertex, int32_t& first, int32_t& last) const;

  // Downlinks carry equal loads only if every lower switch has as many links to each upper one.
  bool are_leaves_even() const { return pod_switches == 0 || leaf_up % pod_switches == 0; }
  bool are_pods_even() const { return cores_per_group == 0 || middle_up % cores_per_group == 0; }

  // Adds the cables between switches. Bundle numbers: leaf l's uplinks l, its downlinks num_leaves + l, then pods
  // alike.
  void add_cables(double capacity_bytes_per_s, SimTime latency, Blueprint& plan) const;
  // The same of one tree of many: its vertices, and its bundles, are numbered from there on.
  void add_cables(double capacity_bytes_per_s, SimTime latency, int32_t vertex_shift, int32_t first_bundle,
                  Blueprint& plan) const;
  int32_t num_bundles() const { return 2 * (num_leaves + num_pods); }

 private:
  void count_leaves();
  void pack_pods(int32_t pod_leaves);
  void add_packed(double capacity_bytes_per_s, SimTime latency, Blueprint& plan) const;
  int32_t leaves_of_pod(int32_t pod) const { return std::min(leaves_per_pod, num_leaves - pod * leaves_per_pod); }
  // Switches of a packed pod.
  int32_t switches_of_pod(int32_t pod) const { return (leaves_of_pod(pod) * leaf_up + radix / 2 - 1) / (radix / 2); }
};

}  // namespace rostam::fabric
