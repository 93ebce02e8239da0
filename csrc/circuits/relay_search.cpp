#include "circuits/relay_search.h"

#include <algorithm>
#include <limits>

#include "circuits/relay_loads.h"
#include "sim/random.h"

namespace rostam::circuits {

namespace {

using Circuits = std::vector<std::pair<int32_t, int32_t>>;

struct Cost {
  double busiest = 0;  // bytes of the busiest circuit
  double squares = 0;  // sum over all circuits
  double carried = 0;  // bytes, once for each circuit that they go over

  bool operator<(const Cost& other) const {
    return std::pair(busiest, squares) < std::pair(other.busiest, other.squares);
  }
  // The busiest circuit gets less busy by a larger share than longer ways add to all of them. Messages that are sent
  // step by step wait for their step's busiest circuit, so that little off the busiest one of all is worth no more.
  bool is_worth(const Cost& given) const { return busiest * carried < given.busiest * given.carried; }
};

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
  if (loads.empty()) return {.busiest = std::numeric_limits<double>::infinity()};
  Cost cost;
  for (size_t i = 0; i < loads.size(); ++i) {
    cost.busiest = std::max(cost.busiest, loads[i] / counts[i]);
    cost.squares += loads[i] * loads[i] / counts[i];
    cost.carried += loads[i];
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
  const Circuits given = circuits;
  const Cost cost_given = cost_of(demand, given);
  Cost now = cost_given, least = now;
  uint64_t state = mix(seed);
  const auto draw = [&] { return static_cast<double>((state = mix(state)) >> 11) * 0x1p-53; };
  for (int64_t left = num_tries; left > 0; --left) {
    auto& one = circuits[static_cast<size_t>(draw() * static_cast<double>(num))];
    auto& other = circuits[static_cast<size_t>(draw() * static_cast<double>(num))];
    if (one.first == other.second || other.first == one.second || one.second == other.second) continue;
    std::swap(one.second, other.second);
    const Cost cost = cost_of(demand, circuits);
    const double slack = 1 + kSlack * draw() * static_cast<double>(left) / static_cast<double>(num_tries);
    if (cost < now || cost.busiest < now.busiest * slack) {
      now = cost;
      if (cost < least) {
        least = cost;
        best = circuits;
      }
    } else {
      std::swap(one.second, other.second);
    }
  }
  return least.is_worth(cost_given) ? best : given;
}

}  // namespace rostam::circuits
