// hybrid_cube_mesh: servers whose accelerators are joined by direct links, given as pairs of places, and forward for
// one another; consecutive accelerators of a server share a NIC, and NICs fill the leaves of a tree (tree.h). Distance:
// that on the mesh inside a server (1 or 2 on DGX-1's), else 2 more than between the NICs. All NICs of a server are on
// one leaf, so no path through another accelerator's NIC is shorter. NICs are numbered last, and so are the cables to
// them and those of the mesh; a switch's latency is on the links into it.
#include <algorithm>
#include <utility>

#include "fabric/registry.h"
#include "fabric/tree.h"

namespace rostam::fabric {

namespace {

class MeshDistance : public DistanceFunction {
 public:
  explicit MeshDistance(const Params& params)
      : num_accelerators_(params.integer("num_accelerators")),
        server_size_(params.integer("server_size")),
        sharing_(params.integer("accelerators_per_nic")),
        tree_(tree_shape(params), num_accelerators_, num_accelerators_ / sharing_, 1) {
    const std::vector<int32_t> src = params.integers("mesh_src"), dst = params.integers("mesh_dst");
    ROSTAM_CHECK(src.size() == dst.size(), "ends of a mesh differ in length");
    for (size_t i = 0; i < src.size(); ++i) cables_.emplace_back(src[i], dst[i]);
    search_mesh();
  }

  const Tree& tree() const { return tree_; }
  int32_t num_accelerators() const { return num_accelerators_; }
  int32_t server_size() const { return server_size_; }
  const std::vector<std::pair<int32_t, int32_t>>& cables() const { return cables_; }
  int32_t num_nics() const { return tree_.num_ports; }
  int32_t nic_of(int32_t accelerator) const { return tree_.end + port_of(accelerator); }

  int32_t distance(int32_t vertex, int32_t accelerator) const override {
    const int32_t port = port_of(accelerator);
    if (vertex < num_accelerators_) {
      const bool is_inside = vertex / server_size_ == accelerator / server_size_;
      return is_inside ? mesh_hops(vertex, accelerator) : tree_.port_distance(port_of(vertex), port) + 2;
    }
    if (vertex < tree_.end) return tree_.switch_distance(vertex, port) + 1;
    const int32_t own = vertex - tree_.end;
    if (own * sharing_ / server_size_ != accelerator / server_size_) return tree_.port_distance(own, port) + 1;
    int32_t nearest = kUnreachable;
    for (int32_t a = own * sharing_; a < (own + 1) * sharing_; ++a) {
      nearest = std::min(nearest, mesh_hops(a, accelerator));
    }
    return nearest + 1;
  }
  int32_t diameter() const override {
    if (num_accelerators_ > server_size_) return tree_.diameter() + 2;
    return *std::max_element(hops_.begin(), hops_.end());
  }

 private:
  int32_t port_of(int32_t accelerator) const { return accelerator / sharing_; }
  int32_t mesh_hops(int32_t a, int32_t b) const {
    return hops_[static_cast<size_t>(a % server_size_ * server_size_ + b % server_size_)];
  }

  // Breadth-first from every place: hops_ (places, places).
  void search_mesh() {
    const auto size = static_cast<size_t>(server_size_);
    hops_.assign(size * size, kUnreachable);
    for (size_t place = 0; place < size; ++place) hops_[place * size + place] = 0;
    for (int32_t length = 1; length < server_size_; ++length) {
      for (size_t place = 0; place < size; ++place) {
        for (const auto& [a, b] : cables_) {
          for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
            int32_t& there = hops_[place * size + static_cast<size_t>(to)];
            if (hops_[place * size + static_cast<size_t>(from)] == length - 1) there = std::min(there, length);
          }
        }
      }
    }
  }

  int32_t num_accelerators_, server_size_, sharing_;
  Tree tree_;
  std::vector<std::pair<int32_t, int32_t>> cables_;
  std::vector<int32_t> hops_;
};

}  // namespace

Blueprint design_hybrid_cube_mesh(const Params& params) {
  const auto mesh = std::make_shared<MeshDistance>(params);
  const Tree& tree = mesh->tree();
  Blueprint plan;
  plan.name = "hybrid_cube_mesh";
  plan.num_accelerators = mesh->num_accelerators();
  plan.num_switches = tree.end - tree.first_leaf;
  plan.num_server_parts = mesh->num_nics();
  plan.accelerators_forward = true;
  const double nic = params.rate("nic_bandwidth_bytes_per_s");
  const SimTime latency = params.time("link_latency_s");
  const SimTime into_switch = latency + params.time("switch_latency_s");
  for (int32_t port = 0; port < tree.num_ports; ++port) {
    plan.add_cable(tree.end + port, tree.first_leaf + tree.leaf_of(port), nic, into_switch);
    plan.links.back().latency = latency;
  }
  tree.add_cables(nic, into_switch, plan);
  for (int32_t a = 0; a < plan.num_accelerators; ++a) {
    plan.add_cable(a, mesh->nic_of(a), params.rate("pcie_bandwidth_bytes_per_s"), SimTime::zero());
  }
  for (int32_t first = 0; first < plan.num_accelerators; first += mesh->server_size()) {
    for (const auto& [a, b] : mesh->cables()) {
      plan.add_cable(first + a, first + b, params.rate("link_bandwidth_bytes_per_s"), latency);
    }
  }
  plan.bundles_collapse = tree.are_leaves_even() && tree.are_pods_even();
  plan.distance = mesh;
  return plan;
}

}  // namespace rostam::fabric
