// fat_tree: two or three levels of switches of one radix; accelerators fill leaves consecutively.
// Two levels: leaf l's uplink u goes to spine (l leaf_up + u) mod spines. Three levels: leaf uplink u goes to switch
// u of its pod, whose uplinks go round-robin to the cores of group u, so every pod reaches every core.
// Distance: 2 on a leaf, 4 in a pod (or on two levels), else 6.
// With servers every accelerator has a NIC, which is what the leaf sees of it, and a link to its server's switch: 2
// inside a server, 2 more than above between servers. NICs and server switches are numbered last, and so are their
// cables, so switches and cables of the network keep their ids; a switch's latency is then on the links into it, and
// a NIC has none.
#include "fabric/registry.h"

namespace rostam::fabric {

namespace {

int32_t divide_up(int32_t a, int32_t b) { return (a + b - 1) / b; }

// Counts of a tree, and the number of its first vertex on each level. On two levels the pod is the whole tree
// and its switches are the spines: the fewest that hold all uplinks if `num_spines` is 0.
struct Tree {
  explicit Tree(const Params& params);

  int32_t num_accelerators, leaf_down, leaf_up, radix, num_leaves, leaves_per_pod, num_pods, pod_switches;
  int32_t middle_up = 0;  // uplinks of a pod's switch
  int32_t cores_per_group = 0;
  int32_t server_size, num_servers;  // 1: no servers, an accelerator's own port is on the leaf
  int32_t first_leaf, first_middle, first_core, end;
  int32_t first_nic = 0, first_server = 0;  // behind `end`

  bool has_servers() const { return server_size > 1; }
  int32_t leaf_of(int32_t accelerator) const { return accelerator / leaf_down; }
  int32_t server_of(int32_t accelerator) const { return accelerator / server_size; }
  int32_t nic_of(int32_t accelerator) const { return has_servers() ? first_nic + accelerator : accelerator; }
  int32_t pod_of_leaf(int32_t leaf) const { return leaf / leaves_per_pod; }
};

Tree::Tree(const Params& params)
    : num_accelerators(params.integer("num_accelerators")),
      leaf_down(params.integer("leaf_down")),
      leaf_up(params.integer("leaf_up")),
      radix(params.integer("radix")),
      num_leaves(divide_up(num_accelerators, leaf_down)),
      server_size(params.integer("server_size")),
      num_servers(server_size > 1 ? divide_up(num_accelerators, server_size) : 0) {
  const bool has_pods = params.integer("levels") == 3;
  num_pods = has_pods ? divide_up(num_leaves, radix / 2) : 1;
  leaves_per_pod = divide_up(num_leaves, num_pods);
  const int32_t num_spines = params.integer("num_spines");
  const int32_t num_upper = num_spines > 0 ? num_spines : divide_up(num_leaves * leaf_up, radix);
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
    ROSTAM_THROW(ConfigError, "fabric.num_accelerators is " << num_accelerators << "; three levels of radix " << radix
                                                            << " join at most " << radix << " pods, not " << num_pods);
  }
  first_leaf = num_accelerators;
  first_middle = first_leaf + num_leaves;
  first_core = first_middle + num_pods * pod_switches;
  end = first_core + pod_switches * cores_per_group;
  first_nic = end;
  first_server = first_nic + (has_servers() ? num_accelerators : 0);
}

class TreeDistance : public DistanceFunction {
 public:
  explicit TreeDistance(const Tree& tree) : tree_(tree) {}

  int32_t distance(int32_t vertex, int32_t accelerator) const override {
    if (vertex == accelerator) return 0;
    if (!tree_.has_servers()) return tree_distance(vertex, accelerator);
    if (vertex >= tree_.first_server) {
      return vertex - tree_.first_server == tree_.server_of(accelerator) ? 1 : kUnreachable;
    }
    // Behind NICs the tree is as it is without servers, one link farther from either accelerator.
    if (vertex >= tree_.first_nic) {
      const int32_t owner = vertex - tree_.first_nic;
      return owner == accelerator ? 1 : tree_distance(owner, accelerator) + 1;
    }
    if (vertex >= tree_.first_leaf) return tree_distance(vertex, accelerator) + 1;
    const bool is_inside = tree_.server_of(vertex) == tree_.server_of(accelerator);
    return is_inside ? 2 : tree_distance(vertex, accelerator) + 2;
  }
  int32_t diameter() const override {
    if (tree_.num_accelerators == 1) return 0;
    if (tree_.num_servers == 1) return 2;
    const int32_t apart = tree_.num_pods > 1 ? 6 : (tree_.num_leaves > 1 ? 4 : 2);
    return apart + (tree_.has_servers() ? 2 : 0);
  }
  bool next_range(int32_t vertex, int32_t accelerator, int32_t& first, int32_t& last) const override {
    const int32_t leaf = tree_.leaf_of(accelerator);
    const int32_t pod = tree_.pod_of_leaf(leaf);
    last = -1;
    if (vertex >= tree_.first_server) {
      first = accelerator;
    } else if (vertex >= tree_.first_nic) {
      const int32_t owner = vertex - tree_.first_nic;
      first = owner == accelerator ? accelerator : tree_.first_leaf + tree_.leaf_of(owner);
    } else if (vertex >= tree_.first_core) {
      first = tree_.first_middle + pod * tree_.pod_switches;
      last = first + tree_.pod_switches;
    } else if (vertex >= tree_.first_middle) {
      const bool is_below = middle_pod(vertex) == pod;
      first = is_below ? tree_.first_leaf + leaf : tree_.first_core;
      if (!is_below) last = tree_.end;
    } else if (vertex >= tree_.first_leaf) {
      const bool is_below = vertex - tree_.first_leaf == leaf;
      first = is_below ? tree_.nic_of(accelerator) : tree_.first_middle;
      if (!is_below) last = tree_.first_core;
    } else if (!tree_.has_servers()) {
      first = tree_.first_leaf + tree_.leaf_of(vertex);
    } else {
      const bool is_inside = tree_.server_of(vertex) == tree_.server_of(accelerator);
      first = is_inside ? tree_.first_server + tree_.server_of(accelerator) : tree_.nic_of(vertex);
    }
    if (last < 0) last = first + 1;
    return true;
  }

 private:
  // From an accelerator, or a switch of the tree, if every accelerator's port were on its leaf.
  int32_t tree_distance(int32_t vertex, int32_t accelerator) const {
    const int32_t leaf = tree_.leaf_of(accelerator);
    if (vertex >= tree_.first_core) return 3;
    if (vertex >= tree_.first_middle) return middle_pod(vertex) == tree_.pod_of_leaf(leaf) ? 2 : 4;
    const bool is_leaf = vertex >= tree_.first_leaf;
    const int32_t here = is_leaf ? vertex - tree_.first_leaf : tree_.leaf_of(vertex);
    return (is_leaf ? 1 : 2) + hops_between(here, leaf);
  }
  int32_t middle_pod(int32_t vertex) const { return (vertex - tree_.first_middle) / tree_.pod_switches; }
  int32_t hops_between(int32_t leaf, int32_t other) const {
    if (leaf == other) return 0;
    return tree_.pod_of_leaf(leaf) == tree_.pod_of_leaf(other) ? 2 : 4;
  }

  Tree tree_;
};

// Bundle numbers: leaf l's uplinks l, its downlinks num_leaves + l, then pods alike.
void join_leaves(const Tree& tree, double capacity, SimTime latency, bool is_even, Blueprint& plan) {
  for (int32_t leaf = 0; leaf < tree.num_leaves && tree.pod_switches > 0; ++leaf) {
    const int32_t pod = tree.pod_of_leaf(leaf);
    for (int32_t u = 0; u < tree.leaf_up; ++u) {
      const int32_t slot = tree.num_pods == 1 ? (leaf * tree.leaf_up + u) % tree.pod_switches : u;
      plan.add_cable(tree.first_leaf + leaf, tree.first_middle + pod * tree.pod_switches + slot, capacity, latency,
                     leaf, is_even ? tree.num_leaves + leaf : -1);
    }
  }
}

void join_pods(const Tree& tree, double capacity, SimTime latency, bool is_even, Blueprint& plan) {
  const int32_t first_bundle = 2 * tree.num_leaves;
  for (int32_t pod = 0; pod < tree.num_pods; ++pod) {
    for (int32_t slot = 0; slot < tree.pod_switches; ++slot) {
      for (int32_t u = 0; u < tree.middle_up; ++u) {
        const int32_t core = slot * tree.cores_per_group + (pod * tree.middle_up + u) % tree.cores_per_group;
        plan.add_cable(tree.first_middle + pod * tree.pod_switches + slot, tree.first_core + core, capacity, latency,
                       first_bundle + pod, is_even ? first_bundle + tree.num_pods + pod : -1);
      }
    }
  }
}

// What is inside servers: accelerator - NIC at the port's rate, accelerator - server switch at `server_capacity`.
void add_servers(const Tree& tree, double capacity, double server_capacity, SimTime latency, SimTime into_switch,
                 Blueprint& plan) {
  for (int32_t a = 0; a < tree.num_accelerators; ++a) {
    plan.add_cable(a, tree.nic_of(a), capacity, SimTime::zero());
    plan.add_cable(a, tree.first_server + tree.server_of(a), server_capacity, into_switch);
    plan.links.back().latency = latency;
  }
}

}  // namespace

Blueprint design_fat_tree(const Params& params) {
  const Tree tree(params);
  Blueprint plan;
  plan.name = "fat_tree";
  plan.num_accelerators = tree.num_accelerators;
  plan.num_switches = tree.end - tree.first_leaf;
  const double capacity = params.rate("link_bandwidth_bytes_per_s");
  const SimTime latency = params.time("link_latency_s");
  const SimTime switch_latency = params.time("switch_latency_s");
  plan.forward_latency = tree.has_servers() ? SimTime::zero() : switch_latency;
  const SimTime into_switch = tree.has_servers() ? latency + switch_latency : latency;
  for (int32_t a = 0; a < tree.num_accelerators; ++a) {
    plan.add_cable(tree.nic_of(a), tree.first_leaf + tree.leaf_of(a), capacity, into_switch);
    plan.links.back().latency = latency;
  }
  // Downlinks carry equal loads only if every lower switch has as many links to each upper one.
  const bool are_leaves_even = tree.pod_switches == 0 || tree.leaf_up % tree.pod_switches == 0;
  const bool are_pods_even = tree.cores_per_group == 0 || tree.middle_up % tree.cores_per_group == 0;
  join_leaves(tree, capacity, into_switch, are_leaves_even, plan);
  join_pods(tree, capacity, into_switch, are_pods_even, plan);
  if (tree.has_servers()) {
    plan.num_server_parts = tree.num_accelerators + tree.num_servers;
    add_servers(tree, capacity, params.rate("server_bandwidth_bytes_per_s"), latency, into_switch, plan);
  }
  plan.bundles_collapse = are_leaves_even && are_pods_even;
  plan.distance = std::make_shared<TreeDistance>(tree);
  return plan;
}

}  // namespace rostam::fabric
