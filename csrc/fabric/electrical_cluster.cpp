// electrical_cluster: servers with one port per accelerator (MODEL A2), joined by an ideal switch over one link of
// `server_bandwidth` per server and direction. Vertices: accelerators, one switch per server, the ideal switch.
// Distance: 2 inside a server, 4 between servers. Source: SiP-ML 4.1, Elect-Cluster.
#include "fabric/registry.h"

namespace rostam::fabric {

namespace {

class ClusterDistance : public DistanceFunction {
 public:
  ClusterDistance(int32_t num_accelerators, int32_t server_size, int32_t num_servers)
      : num_accelerators_(num_accelerators), server_size_(server_size), num_servers_(num_servers) {}

  int32_t distance(int32_t vertex, int32_t accelerator) const override {
    const int32_t server = accelerator / server_size_;
    if (vertex < num_accelerators_) return vertex == accelerator ? 0 : (vertex / server_size_ == server ? 2 : 4);
    if (vertex == num_accelerators_ + num_servers_) return 2;
    return vertex - num_accelerators_ == server ? 1 : 3;
  }
  int32_t diameter() const override { return num_servers_ > 1 ? 4 : (num_accelerators_ > 1 ? 2 : 0); }
  bool next_range(int32_t vertex, int32_t accelerator, int32_t& first, int32_t& last) const override {
    const int32_t server_switch = num_accelerators_ + accelerator / server_size_;
    const int32_t top = num_accelerators_ + num_servers_;
    if (vertex < num_accelerators_) {
      first = num_accelerators_ + vertex / server_size_;
    } else if (vertex == top) {
      first = server_switch;
    } else {
      first = vertex == server_switch ? accelerator : top;
    }
    last = first + 1;
    return true;
  }

 private:
  int32_t num_accelerators_;
  int32_t server_size_;
  int32_t num_servers_;
};

}  // namespace

Blueprint design_electrical_cluster(const Params& params) {
  Blueprint plan;
  plan.name = "electrical_cluster";
  plan.num_accelerators = params.integer("num_accelerators");
  const int32_t server_size = params.integer("server_size");
  const int32_t num_servers = (plan.num_accelerators + server_size - 1) / server_size;
  plan.num_switches = num_servers > 1 ? num_servers + 1 : num_servers;
  const SimTime link = params.time("link_latency_s");
  const SimTime inside = params.time("server_latency_s");
  const SimTime extra = params.time("network_latency_s") - inside;
  const SimTime inside_down = SimTime::from_ps(inside.ps() / 2);
  const SimTime extra_down = SimTime::from_ps(extra.ps() / 2);
  for (int32_t a = 0; a < plan.num_accelerators; ++a) {
    plan.add_cable(a, plan.num_accelerators + a / server_size, params.rate("port_bandwidth_bytes_per_s"),
                   inside - inside_down + link);
    plan.links.back().latency = inside_down + link;
  }
  for (int32_t s = 0; num_servers > 1 && s < num_servers; ++s) {
    plan.add_cable(plan.num_accelerators + s, plan.num_accelerators + num_servers,
                   params.rate("server_bandwidth_bytes_per_s"), extra - extra_down + link);
    plan.links.back().latency = extra_down + link;
  }
  plan.distance = std::make_shared<ClusterDistance>(plan.num_accelerators, server_size, num_servers);
  return plan;
}

}  // namespace rostam::fabric
