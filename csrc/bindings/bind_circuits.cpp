// Binds the control floor: circuits for a demand, and what a schedule demands.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <array>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/work.h"
#include "circuits/ocs_circuits.h"
#include "circuits/relay_loads.h"
#include "circuits/ring_wavelengths.h"
#include "circuits/settings_in_turn.h"
#include "collectives/pair_chunks.h"
#include "control/circuit_switching.h"
#include "fabric/circuits.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace rostam::bindings {

namespace {

template <typename Value>
py::array_t<Value> as_array(const std::vector<Value>& values) {
  return py::array_t<Value>(static_cast<py::ssize_t>(values.size()), values.data());
}

using Ids = py::array_t<int32_t, py::array::c_style | py::array::forcecast>;
using Numbers = py::array_t<double, py::array::c_style | py::array::forcecast>;

circuits::Demand demand_of(int32_t num_accelerators, const Ids& src, const Ids& dst, const Numbers& num_bytes) {
  return {num_accelerators, std::vector<int32_t>(src.data(), src.data() + src.size()),
          std::vector<int32_t>(dst.data(), dst.data() + dst.size()),
          std::vector<double>(num_bytes.data(), num_bytes.data() + num_bytes.size())};
}

py::dict set_ocs_circuits(int32_t num_accelerators, const Ids& src, const Ids& dst, const Numbers& num_bytes,
                          int32_t num_ocs, bool is_symmetric, bool is_duplex, bool can_relay, bool may_leave_out) {
  const circuits::Demand demand = demand_of(num_accelerators, src, dst, num_bytes);
  circuits::OcsCircuits circuits;
  {
    const Work work;
    circuits = circuits::set_ocs_circuits(demand, {num_ocs, is_symmetric, is_duplex, can_relay, may_leave_out});
  }
  return py::dict("src"_a = as_array(circuits.src), "dst"_a = as_array(circuits.dst),
                  "count"_a = as_array(circuits.count), "circuit_pair"_a = as_array(circuits.circuit_pair),
                  "circuit_ocs"_a = as_array(circuits.circuit_ocs), "colouring_gap"_a = circuits.colouring_gap);
}

py::dict set_ring_wavelengths(int32_t num_accelerators, const Ids& src, const Ids& dst, const Numbers& num_bytes,
                              int32_t num_wavelengths, int32_t reach, std::vector<int32_t> cut_segments, uint64_t seed,
                              bool may_leave_out, const std::vector<std::array<int32_t, 3>>& held) {
  const circuits::Demand demand = demand_of(num_accelerators, src, dst, num_bytes);
  const circuits::Ring ring{num_accelerators, num_wavelengths, reach, std::move(cut_segments)};
  circuits::RingWavelengths found;
  {
    const Work work;
    std::vector<circuits::RingCircuit> circuits;
    for (const auto& [pair, fibre, wavelength] : held) circuits.push_back({pair, fibre, wavelength});
    found = circuits::set_ring_wavelengths(demand, ring, seed, may_leave_out, circuits);
  }
  return py::dict("num_hops"_a = as_array(found.num_hops), "count"_a = as_array(found.count),
                  "target"_a = as_array(found.target), "circuit_pair"_a = as_array(found.circuit_pair),
                  "circuit_fibre"_a = as_array(found.circuit_fibre),
                  "circuit_wavelength"_a = as_array(found.circuit_wavelength));
}

py::dict as_columns(const std::vector<circuits::Setting>& settings) {
  std::vector<int32_t> turn, pair, channel;
  for (size_t t = 0; t < settings.size(); ++t) {
    for (const circuits::Circuit one : settings[t]) {
      turn.push_back(static_cast<int32_t>(t));
      pair.push_back(one.pair);
      channel.push_back(one.channel);
    }
  }
  return py::dict("turn"_a = as_array(turn), "pair"_a = as_array(pair), "channel"_a = as_array(channel));
}

py::dict set_ring_in_turn(int32_t num_accelerators, const std::vector<int32_t>& src, const std::vector<int32_t>& dst,
                          const std::vector<std::vector<double>>& num_bytes, int32_t num_wavelengths, int32_t reach,
                          uint64_t seed, bool keeps_idle, bool is_listed) {
  const circuits::Ring ring{num_accelerators, num_wavelengths, reach, {}};
  circuits::SettingsInTurn found;
  {
    const Work work;
    found = circuits::settings_in_turn({num_accelerators, src, dst}, ring, num_bytes, {seed, keeps_idle, is_listed});
  }
  py::dict said("num_changed"_a = as_array(found.num_changed));
  if (!is_listed) return said;
  said["planned"] = as_columns(found.planned);
  said["kept"] = as_columns(found.kept);
  return said;
}

py::array_t<double> relay_loads(int32_t num_accelerators, const Ids& src, const Ids& dst, const Numbers& num_bytes,
                                const Ids& joined_src, const Ids& joined_dst) {
  const circuits::Demand demand = demand_of(num_accelerators, src, dst, num_bytes);
  std::vector<std::pair<int32_t, int32_t>> joined;
  for (py::ssize_t i = 0; i < joined_src.size(); ++i) joined.emplace_back(joined_src.at(i), joined_dst.at(i));
  std::vector<double> loads;
  {
    const Work work;
    loads = circuits::relay_loads(demand, joined);
  }
  return as_array(loads);
}

std::shared_ptr<fabric::Fabric> make_circuit_fabric(const std::string& name, int32_t num_accelerators, const Ids& src,
                                                    const Ids& dst, const Numbers& bandwidth_bytes_per_s,
                                                    const Numbers& latency_s, bool is_relay_enabled) {
  std::vector<fabric::CircuitLink> circuits;
  circuits.reserve(static_cast<size_t>(src.size()));
  for (py::ssize_t i = 0; i < src.size(); ++i) {
    circuits.push_back({src.at(i), dst.at(i), bandwidth_bytes_per_s.at(i), SimTime::from_seconds(latency_s.at(i))});
  }
  const Work work;
  return std::const_pointer_cast<fabric::Fabric>(
      fabric::make_circuit_fabric(name, num_accelerators, circuits, {is_relay_enabled, SimTime::zero()}));
}

py::tuple pair_chunks(const collectives::Schedule& schedule) {
  collectives::PairChunks pairs;
  {
    const Work work;
    pairs = collectives::pair_chunks(schedule);
  }
  return py::make_tuple(as_array(pairs.src), as_array(pairs.dst), as_array(pairs.num_chunks));
}

}  // namespace

void bind_circuits(py::module_& module) {
  module.def(
      "set_ocs_circuits", &set_ocs_circuits, "num_accelerators"_a, "src"_a, "dst"_a, "num_bytes"_a, "num_ocs"_a,
      "is_symmetric"_a = false, "is_duplex"_a = false, "can_relay"_a = false, "may_leave_out"_a = false,
      "Circuits of `num_ocs` optical switches for a demand: pairs, their counts, and the switch of each circuit.");
  module.def("set_ring_wavelengths", &set_ring_wavelengths, "num_accelerators"_a, "src"_a, "dst"_a, "num_bytes"_a,
             "num_wavelengths"_a, "reach"_a, "cut_segments"_a = std::vector<int32_t>(), "seed"_a = 0,
             "may_leave_out"_a = false, "held"_a = std::vector<std::array<int32_t, 3>>(),
             "Wavelengths of a ring's two fibres for a demand: hops and count of each pair, fibre and wavelength of "
             "each circuit. held: pair, fibre and wavelength of circuits that pairs have now, ascending.");
  module.def("set_ring_in_turn", &set_ring_in_turn, "num_accelerators"_a, "src"_a, "dst"_a, "num_bytes"_a,
             "num_wavelengths"_a, "reach"_a, "seed"_a = 0, "keeps_idle"_a = true, "is_listed"_a = false,
             "Settings of a ring for one demand (a row of num_bytes) of the same pairs, ordered by (src, dst), after "
             "another: how many circuits change each time (where those of before that it leaves alone are kept) and, "
             "listed, turn, pair and channel (fibre x W + wavelength) of each circuit, planned and with those kept.");
  module.def("relay_loads", &relay_loads, "num_accelerators"_a, "src"_a, "dst"_a, "num_bytes"_a, "joined_src"_a,
             "joined_dst"_a,
             "Bytes over each pair of accelerators with circuits where every demand takes the fewest of them, in equal "
             "parts; empty if no chain serves one.");
  module.def("switching_modes", &control::switching_modes, "When circuits are set anew: (name, one line) of each.");
  module.def("estimators", &control::estimators,
             "What decisions on circuits know of traffic: (name, one line) of each.");
  module.def("make_circuit_fabric", &make_circuit_fabric, "name"_a, "num_accelerators"_a, "src"_a, "dst"_a,
             "bandwidth_bytes_per_s"_a, "latency_s"_a, "is_relay_enabled"_a = false,
             "The routable fabric of circuits: one directed link a connected pair.");
  module.def("pair_chunks", &pair_chunks, "schedule"_a,
             "Chunks that one run of a schedule sends, as arrays (src rank, dst rank, chunks).");
}

}  // namespace rostam::bindings
