#include "fabric/tree.h"

#include <algorithm>
#include <vector>

namespace rostam::fabric {

namespace {

int32_t divide_up(int32_t a, int32_t b) { return (a + b - 1) / b; }

}  // namespace

TreeShape tree_shape(const Params& params) {
  return {params.integer("leaf_down"), params.integer("leaf_up"),    params.integer("radix"),
          params.integer("levels"),    params.integer("num_spines"), params.integer("pod_leaves")};
}

Tree::Tree(const TreeShape& shape, int32_t first_switch, int32_t num_ports, int32_t num_rails)
    : num_ports(num_ports),
      num_rails(num_rails),
      leaf_down(shape.leaf_down),
      leaf_up(shape.leaf_up),
      radix(shape.radix) {
  count_leaves();
  const bool has_pods = shape.levels == 3;
  num_pods = has_pods ? divide_up(num_leaves, radix / 2) : 1;
  leaves_per_pod = divide_up(num_leaves, num_pods);
  const int32_t num_upper = shape.num_spines > 0 ? shape.num_spines : divide_up(num_leaves * leaf_up, radix);
  pod_switches = num_leaves == 1 ? 0 : (has_pods ? leaf_up : num_upper);
  if (num_pods > 1) {
    middle_up = leaves_per_pod;
    cores_per_group = divide_up(num_pods * middle_up, radix);
  }
  if (!has_pods && pod_switches > leaf_up) {
    ROSTAM_THROW(ConfigError, "fabric.levels is 2, but " << num_leaves << " leaves with fabric.leaf_up=" << leaf_up
                                                         << " need " << pod_switches
                                                         << " spines and a leaf reaches only leaf_up of them; use 3");
  }
  if (cores_per_group > middle_up) {
    ROSTAM_THROW(ConfigError, "fabric.num_accelerators is " << num_ports << "; three levels of radix " << radix
                                                            << " join at most " << radix << " pods, not " << num_pods);
  }
  first_leaf = first_switch;
  if (has_pods && shape.pod_leaves > 0) {
    pack_pods(shape.pod_leaves);
    return;
  }
  first_middle = first_leaf + num_leaves;
  first_core = first_middle + num_pods * pod_switches;
  end = first_core + pod_switches * cores_per_group;
}

void Tree::pack_pods(int32_t pod_leaves) {
  is_packed = true;
  leaves_per_pod = pod_leaves;
  num_pods = divide_up(num_leaves, pod_leaves);
  pod_switches = switches_of_pod(0);
  middle_up = cores_per_group = 0;
  const int32_t num_cores = num_pods > 1 ? divide_up(num_leaves * leaf_up, radix) : 0;
  ROSTAM_CHECK(pod_leaves <= radix / 2 && pod_leaves * leaf_up >= num_cores, "pods do not reach every core");
  first_middle = first_leaf + num_leaves;
  first_core = first_middle + (num_pods - 1) * pod_switches + switches_of_pod(num_pods - 1);
  end = first_core + num_cores;
}

void Tree::add_packed(double capacity_bytes_per_s, SimTime latency, Blueprint& plan) const {
  std::vector<int32_t> down(static_cast<size_t>(first_core - first_middle), 0);  // of a pod's switch, and so up
  for (int32_t leaf = 0; leaf < num_leaves; ++leaf) {
    const int32_t pod = pod_of_leaf(leaf), place = leaf - pod * leaves_per_pod;
    for (int32_t u = 0; u < leaf_up; ++u) {
      const int32_t slot = pod * pod_switches + (place * leaf_up + u) % switches_of_pod(pod);
      plan.add_cable(first_leaf + leaf, first_middle + slot, capacity_bytes_per_s, latency);
      ++down[static_cast<size_t>(slot)];
    }
  }
  int32_t cable = 0;
  for (int32_t slot = 0; slot < first_core - first_middle && end > first_core; ++slot) {
    for (int32_t u = 0; u < down[static_cast<size_t>(slot)]; ++u) {
      const int32_t core = cable++ % (end - first_core);
      plan.add_cable(first_middle + slot, first_core + core, capacity_bytes_per_s, latency);
    }
  }
}

void Tree::count_leaves() {
  num_leaves = divide_up(num_ports, leaf_down);
  if (num_rails == 1) return;
  const int32_t num_servers = divide_up(num_ports, num_rails);
  const int32_t rest = num_servers % leaf_down;
  num_full_units = num_servers / leaf_down;
  num_leaves = num_full_units * num_rails;
  if (rest == 0) return;
  last_rails_per_leaf = std::min(num_rails, leaf_down / rest);
  num_leaves += divide_up(num_rails, last_rails_per_leaf);
}

int32_t Tree::leaf_of(int32_t port) const {
  if (num_rails == 1) return port / leaf_down;
  const int32_t unit = port / num_rails / leaf_down, rail = port % num_rails;
  return unit * num_rails + (unit < num_full_units ? rail : rail / last_rails_per_leaf);
}

int32_t Tree::hops_between(int32_t leaf, int32_t other) const {
  if (leaf == other) return 0;
  return pod_of_leaf(leaf) == pod_of_leaf(other) ? 2 : 4;
}

int32_t Tree::port_distance(int32_t from, int32_t port) const {
  return from == port ? 0 : 2 + hops_between(leaf_of(from), leaf_of(port));
}

int32_t Tree::switch_distance(int32_t vertex, int32_t port) const {
  const int32_t leaf = leaf_of(port);
  if (vertex >= first_core) return 3;
  if (vertex >= first_middle) return pod_of_middle(vertex) == pod_of_leaf(leaf) ? 2 : 4;
  return 1 + hops_between(vertex - first_leaf, leaf);
}

int32_t Tree::diameter() const {
  if (num_ports == 1) return 0;
  return num_pods > 1 ? 6 : (num_leaves > 1 ? 4 : 2);
}

void Tree::next_range(int32_t vertex, int32_t port, int32_t port_vertex, int32_t& first, int32_t& last) const {
  const int32_t leaf = leaf_of(port), pod = pod_of_leaf(leaf);
  last = -1;
  if (vertex >= first_core) {
    first = first_middle + pod * pod_switches;
    last = first + pod_switches;
  } else if (vertex >= first_middle) {
    const bool is_below = pod_of_middle(vertex) == pod;
    first = is_below ? first_leaf + leaf : first_core;
    if (!is_below) last = end;
  } else {
    const bool is_below = vertex - first_leaf == leaf;
    first = is_below ? port_vertex : first_middle;
    if (!is_below) last = first_core;
  }
  if (last < 0) last = first + 1;
}

void Tree::add_cables(double capacity_bytes_per_s, SimTime latency, Blueprint& plan) const {
  is_packed ? add_packed(capacity_bytes_per_s, latency, plan) : add_cables(capacity_bytes_per_s, latency, 0, 0, plan);
}

void Tree::add_cables(double capacity_bytes_per_s, SimTime latency, int32_t vertex_shift, int32_t first_bundle,
                      Blueprint& plan) const {
  const int32_t leaves = vertex_shift + first_leaf, middles = vertex_shift + first_middle;
  for (int32_t leaf = 0; leaf < num_leaves && pod_switches > 0; ++leaf) {
    const int32_t pod = pod_of_leaf(leaf), bundle = first_bundle + leaf;
    for (int32_t u = 0; u < leaf_up; ++u) {
      const int32_t slot = num_pods == 1 ? (leaf * leaf_up + u) % pod_switches : u;
      plan.add_cable(leaves + leaf, middles + pod * pod_switches + slot, capacity_bytes_per_s, latency, bundle,
                     are_leaves_even() ? bundle + num_leaves : -1);
    }
  }
  for (int32_t pod = 0; pod < num_pods; ++pod) {
    const int32_t bundle = first_bundle + 2 * num_leaves + pod;
    for (int32_t slot = 0; slot < pod_switches; ++slot) {
      for (int32_t u = 0; u < middle_up; ++u) {
        const int32_t core = slot * cores_per_group + (pod * middle_up + u) % cores_per_group;
        plan.add_cable(middles + pod * pod_switches + slot, vertex_shift + first_core + core, capacity_bytes_per_s,
                       latency, bundle, are_pods_even() ? bundle + num_pods : -1);
      }
    }
  }
}

}  // namespace rostam::fabric
