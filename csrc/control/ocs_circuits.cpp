// ocs_circuits: circuits of optical circuit switches, set anew while jobs run. Source: SiP-ML 4.1, reconfigurable OCS.
#include <utility>

#include "control/circuit_switching.h"
#include "control/registry.h"
#include "sim/errors.h"

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
  auto planner = circuits::make_ocs_planner(given.pairs, ports);
  return std::make_unique<CircuitSwitching>(std::move(given), switching_options(params), std::move(planner));
}

}  // namespace rostam::control
