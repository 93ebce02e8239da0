// Binds the network floor: which engines there are and what each can do. Sessions make them inside the core.
#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "network/registry.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace rostam::bindings {

void bind_network(py::module_& module) {
  py::class_<network::EngineTraits>(module, "EngineTraits", "What sessions and shortcuts may rely on.")
      .def_readonly("can_fold", &network::EngineTraits::can_fold, "Folded systems may run on it.")
      .def_readonly("exact_when_alone", &network::EngineTraits::exact_when_alone,
                    "A transfer alone on its links runs at their rate, so that shortcuts may compute it.")
      .def_readonly("can_adapt", &network::EngineTraits::can_adapt,
                    "It divides messages over the paths of their routes, as routing adaptive asks for.")
      .def_readonly("walks_packets", &network::EngineTraits::walks_packets,
                    "Messages go as packets, over links that are not bundled.")
      .def_readonly("summary", &network::EngineTraits::summary, "One line, for lists.");
  py::enum_<network::SpareChannels>(module, "SpareChannels", "What tells packets on spare virtual channels apart.")
      .value("output", network::SpareChannels::kOutput, "The output that they take next.")
      .value("destination", network::SpareChannels::kDestination, "Where they go.")
      .value("idle", network::SpareChannels::kIdle, "Nothing: no packet takes them.");
  py::enum_<network::BufferParts>(module, "BufferParts", "What virtual channels have of their link's buffer.")
      .value("routing", network::BufferParts::kByRouting, "Shared where packets go by load, else equal.")
      .value("equal", network::BufferParts::kEqual, "Equal parts.")
      .value("shared", network::BufferParts::kShared, "A packet each, the rest for all.");
  py::class_<network::PacketOptions>(module, "PacketOptions", "How messages are cut, and what switches are like.")
      .def(py::init([](int64_t packet_bytes, int64_t flit_bytes, int64_t buffer_bytes, int32_t num_vcs,
                       int32_t crossbar_speedup, int64_t buffer_latency_ps, network::SpareChannels spare_vcs,
                       network::BufferParts buffer_parts) {
             const SimTime latency = buffer_latency_ps < 0 ? SimTime::never() : SimTime::from_ps(buffer_latency_ps);
             return network::PacketOptions{packet_bytes,     flit_bytes, buffer_bytes, num_vcs,
                                           crossbar_speedup, latency,    spare_vcs,    buffer_parts};
           }),
           py::kw_only(), "packet_bytes"_a = network::PacketOptions().packet_bytes,
           "flit_bytes"_a = network::PacketOptions().flit_bytes,
           "buffer_bytes"_a = network::PacketOptions().buffer_bytes, "num_vcs"_a = network::PacketOptions().num_vcs,
           "crossbar_speedup"_a = network::PacketOptions().crossbar_speedup, "buffer_latency_ps"_a = -1,
           py::arg_v("spare_vcs", network::PacketOptions().spare_vcs, "SpareChannels.output"),
           py::arg_v("buffer_parts", network::PacketOptions().buffer_parts, "BufferParts.routing"),
           "num_vcs 0: as many as the routing takes. buffer_latency_ps below 0: the fabric's own.")
      .def_readonly("packet_bytes", &network::PacketOptions::packet_bytes, "The most of a message in one packet.")
      .def_readonly("flit_bytes", &network::PacketOptions::flit_bytes, "What a switch waits for.")
      .def_readonly("buffer_bytes", &network::PacketOptions::buffer_bytes, "Of a port.")
      .def_readonly("crossbar_speedup", &network::PacketOptions::crossbar_speedup, "Outputs fed by a port at once.");
  module.def("engine_names", &network::engine_names, "Names of the registered engines (fidelities).");
  module.def("engine_traits", &network::engine_traits, "fidelity"_a, "Traits of a registered engine.");
}

}  // namespace rostam::bindings
