// ocs_circuits: circuits of optical circuit switches, set anew while jobs run. Source: SiP-ML 4.1, reconfigurable OCS.
#include <utility>

#include "control/circuit_switching.h"
#include "control/registry.h"

namespace rostam::control {

std::unique_ptr<Controller> make_ocs_circuits_controller(const ControllerParams& params) {
  std::vector<std::string> keys = kSwitchingKeys;
  keys.insert(keys.end(), {"num_ocs", "symmetric", "duplex"});
  params.check_keys(keys);
  circuits::OcsPorts ports;
  ports.num_ocs = static_cast<int32_t>(params.integer("num_ocs"));
  ports.is_symmetric = params.integer("symmetric") != 0;
  ports.is_duplex = params.integer("duplex") != 0;
  SwitchedPairs given = switched_pairs(params);
  SwitchingOptions options = switching_options(params);
  ports.can_relay = options.enable_relay;
  const auto mirror = ports.is_duplex      ? circuits::Mirror::kChannels
                      : ports.is_symmetric ? circuits::Mirror::kCounts
                                           : circuits::Mirror::kNone;
  const auto make = [pairs = given.pairs, ports](const std::vector<int32_t>& channels, const std::vector<int32_t>&) {
    circuits::OcsPorts left = ports;
    left.num_ocs = static_cast<int32_t>(channels.size());
    return circuits::make_ocs_planner(pairs, left);
  };
  auto planner = std::make_unique<circuits::PlannerAround>(
      given.pairs, circuits::make_ocs_paths(given.pairs.num_accelerators, ports.num_ocs), make, mirror,
      ports.can_relay);
  return std::make_unique<CircuitSwitching>(std::move(given), std::move(options), std::move(planner));
}

}  // namespace rostam::control
