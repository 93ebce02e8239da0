#include "circuits/relay_search.h"

#include <algorithm>
#include <limits>

#include "circuits/relay_loads.h"
#include "sim/random.h"

namespace rostam::circuits {

namespace {

using Circuits = std::vector<std::pair<int32_t, int32_t>>;
using Cost = std::pair<double, double>;  // of the busiest circuit, and the sum of squares over all

// Moves that are tried at most, and by how much the first ones may make the busiest circuit busier.
constexpr int64_t kMaxTries = 4000;
constexpr double kSlack = 0.5;

Cost cost_of(const Demand& demand, Circuits circuits) {
  std::sort(circuits.begin(), circuits.end());
  Circuits joined;
  std::vector<double> counts;
  for (const auto& one : circuits) {
    if (!joined.empty() && joined.back() == one) {
      ++counts.back();
    } else {
      joined.push_back(one);
      counts.push_back(1);
    }
  }
  const std::vector<double> loads = relay_loads(demand, joined);
  if (loads.empty()) return {std::numeric_limits<double>::infinity(), 0};
  Cost cost{0, 0};
  for (size_t i = 0; i < loads.size(); ++i) {
    cost.first = std::max(cost.first, loads[i] / counts[i]);
    cost.second += loads[i] * loads[i] / counts[i];
  }
  return cost;
}

}  // namespace

Circuits improve_relays(const Demand& demand, Circuits circuits, int64_t num_steps, uint64_t seed) {
  const auto num = static_cast<uint64_t>(circuits.size());
  if (num < 2) return circuits;
  const int64_t num_tries =
      std::min(num_steps / (int64_t{demand.num_accelerators} * static_cast<int64_t>(num)), kMaxTries);
  Circuits best = circuits;
  Cost now = cost_of(demand, circuits), least = now;
  uint64_t state = mix(seed);
  const auto draw = [&] { return static_cast<double>((state = mix(state)) >> 11) * 0x1p-53; };
  for (int64_t left = num_tries; left > 0; --left) {
    auto& one = circuits[static_cast<size_t>(draw() * static_cast<double>(num))];
    auto& other = circuits[static_cast<size_t>(draw() * static_cast<double>(num))];
    if (one.first == other.second || other.first == one.second || one.second == other.second) continue;
    std::swap(one.second, other.second);
    const Cost cost = cost_of(demand, circuits);
    const double slack = 1 + kSlack * draw() * static_cast<double>(left) / static_cast<double>(num_tries);
    if (cost < now || cost.first < now.first * slack) {
      now = cost;
      if (cost < least) {
        least = cost;
        best = circuits;
      }
    } else {
      std::swap(one.second, other.second);
    }
  }
  return best;
}

}  // namespace rostam::circuits
