#include "fabric/circuits.h"

#include <algorithm>
#include <utility>

namespace rostam::fabric {

namespace {

// One hop where there is a circuit, and no way at all elsewhere.
class DirectDistance : public DistanceFunction {
 public:
  explicit DirectDistance(const std::vector<CircuitLink>& circuits) {
    pairs_.reserve(circuits.size());
    for (const CircuitLink& circuit : circuits) pairs_.emplace_back(circuit.src, circuit.dst);
    std::sort(pairs_.begin(), pairs_.end());
  }

  int32_t distance(int32_t vertex, int32_t accelerator) const override {
    if (vertex == accelerator) return 0;
    return std::binary_search(pairs_.begin(), pairs_.end(), std::make_pair(vertex, accelerator)) ? 1 : kUnreachable;
  }
  int32_t diameter() const override { return pairs_.empty() ? 0 : 1; }

 private:
  std::vector<std::pair<int32_t, int32_t>> pairs_;
};

}  // namespace

std::shared_ptr<const Fabric> make_circuit_fabric(const std::string& name, int32_t num_accelerators,
                                                  const std::vector<CircuitLink>& circuits, const CircuitRelay& relay) {
  Blueprint plan;
  plan.name = name;
  plan.num_accelerators = num_accelerators;
  plan.accelerators_forward = relay.is_enabled;
  plan.forward_latency = relay.latency;
  plan.links.reserve(circuits.size());
  for (const CircuitLink& circuit : circuits) {
    plan.add_link(circuit.src, circuit.dst, circuit.bandwidth_bytes_per_s, circuit.latency);
  }
  if (relay.is_enabled) {
    plan.no_route_hint = "no chain of circuits joins them; set circuits for a demand that holds this pair";
  } else {
    plan.distance = std::make_shared<DirectDistance>(circuits);
    plan.no_route_hint = "this pair has no circuit; set circuits for a demand that holds it";
  }
  return std::make_shared<const Fabric>(std::move(plan));
}

}  // namespace rostam::fabric
