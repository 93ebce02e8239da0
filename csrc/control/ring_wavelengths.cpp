// ring_wavelengths: wavelengths of a ring's two fibres, set anew while jobs run. Source: SiP-ML 3.3, SiP-Ring.
#include <utility>

#include "control/circuit_switching.h"
#include "control/registry.h"
#include "sim/errors.h"

namespace rostam::control {

std::unique_ptr<Controller> make_ring_wavelengths_controller(const ControllerParams& params) {
  std::vector<std::string> keys = kSwitchingKeys;
  keys.insert(keys.end(), {"num_wavelengths", "reach", "cut_segments", "seed"});
  params.check_keys(keys);
  SwitchedPairs given = switched_pairs(params);
  circuits::Ring ring;
  ring.num_accelerators = given.pairs.num_accelerators;
  ring.num_wavelengths = static_cast<int32_t>(params.integer("num_wavelengths"));
  ring.reach = static_cast<int32_t>(params.integer("reach"));
  if (params.has("cut_segments")) {
    for (const int64_t cable : params.integers("cut_segments"))
      ring.cut_segments.push_back(static_cast<int32_t>(cable));
  }
  const auto seed = static_cast<uint64_t>(params.integer("seed"));
  const SwitchingOptions options = switching_options(params);
  const bool can_relay = options.enable_relay;
  const auto make = [pairs = given.pairs, ring, seed, can_relay](const std::vector<int32_t>&,
                                                                 const std::vector<int32_t>& cut) {
    circuits::Ring left = ring;
    left.cut_segments.insert(left.cut_segments.end(), cut.begin(), cut.end());
    return circuits::make_ring_planner(pairs, left, seed, can_relay);
  };
  auto planner = std::make_unique<circuits::PlannerAround>(given.pairs, circuits::make_ring_paths(ring), make,
                                                           circuits::Mirror::kNone, can_relay);
  return std::make_unique<CircuitSwitching>(std::move(given), options, std::move(planner));
}

}  // namespace rostam::control
