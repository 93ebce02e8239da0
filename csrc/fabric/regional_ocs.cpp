// regional_ocs: servers with one port per accelerator, joined by an ideal electrical switch and, within a region of
// consecutive servers, by circuits of optical switches. Switch k of a region begins with circuits from each server to
// the one 1 + k mod (servers of the region - 1) after it, so that circuits are spread evenly.
// Vertices: accelerators, one switch per server, the electrical switch. Optical switches are in the circuits.
// Distance: 2 inside a server, 3 over a circuit, 4 over the electrical switch. Source: MixNet (arXiv 2501.03905).
#include <algorithm>

#include "fabric/registry.h"

namespace rostam::fabric {

namespace {

// Where servers and regions are.
struct Regions {
  int32_t num_accelerators = 0;
  int32_t server_size = 0;
  int32_t num_servers = 0;
  int32_t region_servers = 0;
  int32_t num_ocs = 0;

  int32_t size_of_region(int32_t server) const {
    const int32_t first = server / region_servers * region_servers;
    return std::min(region_servers, num_servers - first);
  }
  // Circuits from one server to another before any are set anew.
  int32_t num_circuits(int32_t from, int32_t to) const {
    if (from == to || from / region_servers != to / region_servers) return 0;
    const int32_t size = size_of_region(from), shift = (to - from + size) % size - 1;
    return num_ocs / (size - 1) + (shift < num_ocs % (size - 1) ? 1 : 0);
  }
};

class RegionalDistance : public DistanceFunction {
 public:
  explicit RegionalDistance(const Regions& regions) : at_(regions) {}

  int32_t distance(int32_t vertex, int32_t accelerator) const override {
    if (vertex == accelerator) return 0;
    const int32_t server = accelerator / at_.server_size;
    if (vertex < at_.num_accelerators) return 1 + from_server(vertex / at_.server_size, server);
    const int32_t number = vertex - at_.num_accelerators;
    return number == at_.num_servers ? 2 : from_server(number, server);
  }
  int32_t diameter() const override {
    if (at_.num_servers == 1) return at_.num_accelerators > 1 ? 2 : 0;
    // The first region is the largest.
    const int32_t size = at_.size_of_region(0);
    return size == at_.num_servers && at_.num_ocs >= size - 1 ? 3 : 4;
  }
  bool next_range(int32_t vertex, int32_t accelerator, int32_t& first, int32_t& last) const override {
    const int32_t server = accelerator / at_.server_size, number = vertex - at_.num_accelerators;
    if (number < 0) {
      first = at_.num_accelerators + vertex / at_.server_size;
    } else if (number == server) {
      first = accelerator;
    } else if (number == at_.num_servers || at_.num_circuits(number, server) > 0) {
      first = at_.num_accelerators + server;
    } else {
      first = at_.num_accelerators + at_.num_servers;
    }
    last = first + 1;
    return true;
  }

 private:
  int32_t from_server(int32_t from, int32_t to) const {
    if (from == to) return 1;
    return at_.num_circuits(from, to) > 0 ? 2 : 3;
  }

  Regions at_;
};

}  // namespace

Blueprint design_regional_ocs(const Params& params) {
  Regions at;
  at.num_accelerators = params.integer("num_accelerators");
  at.server_size = params.integer("server_size");
  at.num_servers = (at.num_accelerators + at.server_size - 1) / at.server_size;
  at.region_servers = params.integer("region_servers");
  at.num_ocs = params.integer("num_ocs");
  Blueprint plan;
  plan.name = "regional_ocs";
  plan.num_accelerators = at.num_accelerators;
  plan.num_switches = at.num_servers > 1 ? at.num_servers + 1 : 1;
  const SimTime link = params.time("link_latency_s"), inside = params.time("server_latency_s");
  const SimTime extra = params.time("network_latency_s") - inside;
  const SimTime inside_down = SimTime::from_ps(inside.ps() / 2), extra_down = SimTime::from_ps(extra.ps() / 2);
  for (int32_t a = 0; a < at.num_accelerators; ++a) {
    plan.add_cable(a, at.num_accelerators + a / at.server_size, params.rate("port_bandwidth_bytes_per_s"),
                   inside - inside_down + link);
    plan.links.back().latency = inside_down + link;
  }
  for (int32_t s = 0; at.num_servers > 1 && s < at.num_servers; ++s) {
    plan.add_cable(at.num_accelerators + s, at.num_accelerators + at.num_servers,
                   params.rate("electrical_bandwidth_bytes_per_s"), extra - extra_down + link);
    plan.links.back().latency = extra_down + link;
  }
  const double circuit = params.rate("circuit_bandwidth_bytes_per_s");
  const bool has_all_pairs = params.integer("has_all_pairs") != 0;
  for (int32_t s = 0; s < at.num_servers; ++s) {
    const int32_t begin = s / at.region_servers * at.region_servers, end = begin + at.size_of_region(s);
    for (int32_t t = begin; t < end; ++t) {
      const int32_t num = at.num_circuits(s, t);
      if (s == t || (num == 0 && !has_all_pairs)) continue;
      plan.add_link(at.num_accelerators + s, at.num_accelerators + t, std::max(num, 1) * circuit, extra + link);
    }
  }
  plan.distance = std::make_shared<RegionalDistance>(at);
  return plan;
}

}  // namespace rostam::fabric
