// fat_tree: two or three levels of switches of one radix (tree.h); accelerators fill leaves consecutively, or rails.
// Distance: 2 on a leaf, 4 in a pod (or on two levels), else 6; searched where pods are packed.
// With servers every accelerator has a NIC, which is what the leaf sees of it, and a link to its server's switch: 2
// inside a server, 2 more than above between servers. NICs and server switches are numbered last, and so are their
// cables, so switches and cables of the network keep their ids; a switch's latency is then on the links into it, and
// a NIC has none.
#include "fabric/registry.h"
#include "fabric/tree.h"
#include "fabric/up_down.h"

namespace rostam::fabric {

namespace {

// The tree, and servers below it: server_size 1 for none, an accelerator's own port is then on the leaf.
struct Servers {
  explicit Servers(const Params& params)
      : num_accelerators(params.integer("num_accelerators")),
        size(params.integer("server_size")),
        count(size > 1 ? (num_accelerators + size - 1) / size : 0),
        tree(tree_shape(params), num_accelerators, num_accelerators, params.integer("rails") != 0 ? size : 1),
        first_nic(tree.end),
        first_switch(first_nic + (exist() ? num_accelerators : 0)) {}

  bool exist() const { return size > 1; }
  int32_t server_of(int32_t accelerator) const { return accelerator / size; }
  int32_t nic_of(int32_t accelerator) const { return exist() ? first_nic + accelerator : accelerator; }

  int32_t num_accelerators, size, count;
  Tree tree;
  int32_t first_nic, first_switch;
};

class TreeDistance : public DistanceFunction {
 public:
  explicit TreeDistance(const Servers& servers) : servers_(servers), tree_(servers_.tree) {}

  int32_t distance(int32_t vertex, int32_t accelerator) const override {
    if (vertex == accelerator) return 0;
    if (!servers_.exist()) return tree_distance(vertex, accelerator);
    if (vertex >= servers_.first_switch) {
      return vertex - servers_.first_switch == servers_.server_of(accelerator) ? 1 : kUnreachable;
    }
    // Behind NICs the tree is as it is without servers, one link farther from either accelerator.
    if (vertex >= servers_.first_nic) {
      const int32_t owner = vertex - servers_.first_nic;
      return owner == accelerator ? 1 : tree_distance(owner, accelerator) + 1;
    }
    if (vertex >= tree_.first_leaf) return tree_distance(vertex, accelerator) + 1;
    const bool is_inside = servers_.server_of(vertex) == servers_.server_of(accelerator);
    return is_inside ? 2 : tree_distance(vertex, accelerator) + 2;
  }
  int32_t diameter() const override {
    if (tree_.num_ports == 1) return 0;
    if (servers_.count == 1) return 2;
    return tree_.diameter() + (servers_.exist() ? 2 : 0);
  }
  bool next_range(int32_t vertex, int32_t accelerator, int32_t& first, int32_t& last) const override {
    if (vertex >= servers_.first_switch) {
      first = accelerator;
    } else if (vertex >= servers_.first_nic) {
      const int32_t owner = vertex - servers_.first_nic;
      first = owner == accelerator ? accelerator : tree_.first_leaf + tree_.leaf_of(owner);
    } else if (vertex >= tree_.first_leaf) {
      tree_.next_range(vertex, accelerator, servers_.nic_of(accelerator), first, last);
      return true;
    } else if (!servers_.exist()) {
      first = tree_.first_leaf + tree_.leaf_of(vertex);
    } else {
      const bool is_inside = servers_.server_of(vertex) == servers_.server_of(accelerator);
      first = is_inside ? servers_.first_switch + servers_.server_of(accelerator) : servers_.nic_of(vertex);
    }
    last = first + 1;
    return true;
  }

 private:
  // From an accelerator, or a switch of the tree, if every accelerator's port were on its leaf.
  int32_t tree_distance(int32_t vertex, int32_t accelerator) const {
    return vertex >= tree_.first_leaf ? tree_.switch_distance(vertex, accelerator)
                                      : tree_.port_distance(vertex, accelerator);
  }

  Servers servers_;
  const Tree& tree_;
};

// What is inside servers: accelerator - NIC at the port's rate, accelerator - server switch at `server_capacity`.
void add_servers(const Servers& servers, double capacity, double server_capacity, SimTime latency, SimTime into_switch,
                 Blueprint& plan) {
  for (int32_t a = 0; a < servers.num_accelerators; ++a) {
    plan.add_cable(a, servers.nic_of(a), capacity, SimTime::zero());
    plan.add_cable(a, servers.first_switch + servers.server_of(a), server_capacity, into_switch);
    plan.links.back().latency = latency;
  }
}

// Tiers from the accelerators upwards: NICs, leaves and the switches of servers, then one tier after the other.
std::vector<int32_t> tiers_of(const Servers& servers, int32_t num_vertices) {
  const Tree& tree = servers.tree;
  std::vector<int32_t> tiers(static_cast<size_t>(num_vertices), 2);
  for (int32_t v = 0; v < num_vertices; ++v) {
    int32_t& tier = tiers[static_cast<size_t>(v)];
    if (v < tree.first_leaf) tier = 0;
    if (v >= tree.first_middle && v < tree.end) tier = v < tree.first_core ? 3 : 4;
    if (v >= servers.first_nic && v < servers.first_switch) tier = 1;
  }
  return tiers;
}

// Takes ports, servers, leaves or pods to the next one, round the server, leaf, pod or tree that they are in; those
// that are not full stay where they are, and so do switches above leaves, and cores, which are joined to all below
// alike.
class Rotation {
 public:
  Rotation(const Servers& servers, int32_t stride, int32_t count) : servers_(servers), stride_(stride), count_(count) {}

  std::vector<int32_t> map(int32_t num_vertices) const {
    const Tree& tree = servers_.tree;
    const int32_t leaf_ports = tree.leaf_down, pod_ports = tree.leaves_per_pod * tree.leaf_down;
    std::vector<int32_t> image(static_cast<size_t>(num_vertices));
    for (int32_t v = 0; v < num_vertices; ++v) {
      int32_t& to = image[static_cast<size_t>(v)];
      to = v;
      if (v < tree.first_leaf) {
        to = port(v);
      } else if (v < tree.first_middle) {
        to = tree.first_leaf + port((v - tree.first_leaf) * leaf_ports) / leaf_ports;
      } else if (v < tree.first_core) {
        const int32_t pod = (v - tree.first_middle) / tree.pod_switches;
        to = v + (port(pod * pod_ports) / pod_ports - pod) * tree.pod_switches;
      } else if (v >= servers_.first_switch) {
        to = servers_.first_switch + servers_.server_of(port((v - servers_.first_switch) * servers_.size));
      } else if (v >= servers_.first_nic) {
        to = servers_.first_nic + port(v - servers_.first_nic);
      }
    }
    return image;
  }

 private:
  int32_t port(int32_t p) const {
    const int32_t first = p / (stride_ * count_) * (stride_ * count_);
    const int32_t num_full = std::min(count_, (servers_.num_accelerators - first) / stride_);
    const int32_t index = (p - first) / stride_;
    if (index >= num_full) return p;
    return index + 1 < num_full ? p + stride_ : first + (p - first) % stride_;
  }

  const Servers& servers_;
  int32_t stride_, count_;
};

// None where servers do not fill leaves, rails mix ports, or pods are packed.
std::vector<std::vector<int32_t>> rotations_of(const Servers& servers, int32_t num_vertices) {
  const Tree& tree = servers.tree;
  const int32_t on_leaf = tree.num_leaves == 1 ? tree.num_ports : tree.leaf_down;
  std::vector<std::vector<int32_t>> maps;
  if (tree.num_rails != 1 || on_leaf % servers.size != 0 || tree.is_packed) return maps;
  int32_t stride = 1;
  for (const int32_t count : {servers.size, on_leaf / servers.size, tree.leaves_per_pod, tree.num_pods}) {
    if (count > 1) maps.push_back(Rotation(servers, stride, count).map(num_vertices));
    stride *= count;
  }
  return maps;
}

}  // namespace

Blueprint design_fat_tree(const Params& params) {
  const Servers servers(params);
  const Tree& tree = servers.tree;
  Blueprint plan;
  plan.name = "fat_tree";
  plan.num_accelerators = servers.num_accelerators;
  plan.num_switches = tree.end - tree.first_leaf;
  const double capacity = params.rate("link_bandwidth_bytes_per_s");
  const SimTime latency = params.time("link_latency_s");
  const SimTime switch_latency = params.time("switch_latency_s");
  plan.forward_latency = servers.exist() ? SimTime::zero() : switch_latency;
  const SimTime into_switch = servers.exist() ? latency + switch_latency : latency;
  for (int32_t a = 0; a < servers.num_accelerators; ++a) {
    plan.add_cable(servers.nic_of(a), tree.first_leaf + tree.leaf_of(a), capacity, into_switch);
    plan.links.back().latency = latency;
  }
  tree.add_cables(capacity, into_switch, plan);
  if (servers.exist()) {
    plan.num_server_parts = servers.num_accelerators + servers.count;
    add_servers(servers, capacity, params.rate("server_bandwidth_bytes_per_s"), latency, into_switch, plan);
  }
  plan.bundles_collapse = tree.are_leaves_even() && tree.are_pods_even() && !tree.is_packed;
  plan.turn_rule = make_up_down(tiers_of(servers, tree.end + plan.num_server_parts));
  plan.symmetries = rotations_of(servers, tree.end + plan.num_server_parts);
  if (!tree.is_packed) plan.distance = std::make_shared<TreeDistance>(servers);
  return plan;
}

}  // namespace rostam::fabric
