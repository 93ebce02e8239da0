// photonic_rails: servers whose i-th accelerators are a rail: joined by circuits of the rail's own optical switches,
// and by nothing else. Inside a server all are on one switch, which is how data comes to the rail of its destination:
// it never changes servers after it has left a rail, unless parts have failed. The switches of a rail begin with
// circuits from each server to the next one, back, to the second next, back, and so on; where circuits are not set anew
// what has none goes on along its rail. Vertices: accelerators, one switch per server; optical switches are in the
// circuits. Source: Ding, Ouyang and Singh, Photonic Rails in ML Datacenters, 2025 (arXiv 2507.08119).
#include <algorithm>
#include <vector>

#include "fabric/registry.h"

namespace rostam::fabric {

namespace {

// Where failures leave nothing else: anything, from one rail through a server to the next.
class AnyWay : public PathRule {
 public:
  int32_t num_phases() const override { return 1; }
  int32_t next_phase(int32_t, const Link&) const override { return 0; }
};

// Through the own server to the rail of the destination, then along it; phase 1: on a rail.
class ServerFirst : public PathRule {
 public:
  explicit ServerFirst(int32_t num_accelerators) : num_accelerators_(num_accelerators) {}

  int32_t num_phases() const override { return 2; }
  int32_t next_phase(int32_t phase, const Link& link) const override {
    const bool is_rail = link.src < num_accelerators_ && link.dst < num_accelerators_;
    if (is_rail) return 1;
    return phase == 0 ? 0 : -1;
  }

 private:
  int32_t num_accelerators_;
};

// How many servers ahead the circuits of each switch lead, as a count of each distance.
std::vector<int32_t> circuits_ahead(int32_t num_servers, int32_t num_ocs) {
  std::vector<int32_t> count(static_cast<size_t>(num_servers), 0);
  for (int32_t k = 0; num_servers > 1 && k < num_ocs; ++k) {
    const int32_t turn = k % (num_servers - 1), distance = turn / 2 + 1;
    ++count[static_cast<size_t>(turn % 2 == 0 ? distance : num_servers - distance)];
  }
  return count;
}

}  // namespace

Blueprint design_photonic_rails(const Params& params) {
  const int32_t n = params.integer("num_accelerators"), size = params.integer("server_size");
  const int32_t num_ocs = params.integer("num_ocs");
  const bool has_all_pairs = params.integer("has_all_pairs") != 0;
  const int32_t num_servers = n / size;
  Blueprint plan;
  plan.name = "photonic_rails";
  plan.num_accelerators = n;
  plan.num_switches = num_servers;
  plan.accelerators_forward = true;
  plan.path_rule = std::make_shared<ServerFirst>(n);
  plan.detour_rule = std::make_shared<AnyWay>();
  const SimTime inside = params.time("server_latency_s"), link = params.time("link_latency_s");
  const SimTime down = SimTime::from_ps(inside.ps() / 2);
  for (int32_t a = 0; a < n; ++a) {
    plan.add_cable(a, n + a / size, params.rate("port_bandwidth_bytes_per_s"), inside - down + link);
    plan.links.back().latency = down + link;
  }
  const std::vector<int32_t> ahead = circuits_ahead(num_servers, num_ocs);
  const double circuit = params.rate("circuit_bandwidth_bytes_per_s");
  const SimTime latency = params.time("latency_s") + link.times(2);
  const auto capacity = [circuit](int32_t count) { return std::max(count, 1) * circuit; };
  // How far the higher server of a cable may be from the lower one; of many servers, few distances have circuits.
  std::vector<int32_t> apart;
  for (int32_t d = 1; d < num_servers; ++d) {
    const bool has_any = ahead[static_cast<size_t>(d)] > 0 || ahead[static_cast<size_t>(num_servers - d)] > 0;
    if (has_all_pairs || has_any) apart.push_back(d);
  }
  for (int32_t rail = 0; rail < size; ++rail) {
    for (int32_t s = 0; s < num_servers; ++s) {
      for (const int32_t d : apart) {
        const int32_t t = s + d;
        if (t >= num_servers) break;
        const int32_t a = s * size + rail, b = t * size + rail;
        const int32_t forth = ahead[static_cast<size_t>(t - s)], back = ahead[static_cast<size_t>(s - t + num_servers)];
        if (has_all_pairs || (forth > 0 && back > 0)) {
          plan.add_cable(a, b, capacity(forth), latency);
          plan.links.back().capacity_bytes_per_s = capacity(back);
        } else if (forth > 0) {
          plan.add_link(a, b, capacity(forth), latency);
        } else if (back > 0) {
          plan.add_link(b, a, capacity(back), latency);
        }
      }
    }
  }
  return plan;
}

}  // namespace rostam::fabric
