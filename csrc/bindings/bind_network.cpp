// Binds the network floor: which engines there are and what each can do. Sessions make them inside the core.
#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "network/buffer_names.h"
#include "network/registry.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace rostam::bindings {

void bind_network(py::module_& module) {
  py::class_<network::EngineTraits>(module, "EngineTraits", "What sessions and shortcuts may rely on.")
      .def_readonly("can_fold", &network::EngineTraits::can_fold, "Folded systems may run on it.")
      .def_readonly("exact_when_alone", &network::EngineTraits::exact_when_alone,
                    "A transfer alone on its links runs at their rate, so that shortcuts may compute it.")
      .def_readonly("tells_shares", &network::EngineTraits::tells_shares,
                    "Tells what a transfer puts on each link of its route, unless it divides the transfer itself.")
      .def_readonly("can_adapt", &network::EngineTraits::can_adapt,
                    "It divides messages over the paths of their routes, as routing adaptive asks for.")
      .def_readonly("walks_packets", &network::EngineTraits::walks_packets,
                    "Messages go as packets, over links that are not bundled.")
      .def_readonly("summary", &network::EngineTraits::summary, "One line, for lists.");
  py::class_<network::PacketOptions>(module, "PacketOptions", "How messages are cut, and what switches are like.")
      .def(py::init([](int64_t packet_bytes, int64_t flit_bytes, int64_t buffer_bytes, int32_t num_vcs,
                       int32_t crossbar_speedup, int64_t buffer_latency_ps, const std::string& spare_vcs,
                       const std::string& buffer_parts, bool skip) {
             const SimTime latency = buffer_latency_ps < 0 ? SimTime::never() : SimTime::from_ps(buffer_latency_ps);
             return network::PacketOptions{packet_bytes,
                                           flit_bytes,
                                           buffer_bytes,
                                           num_vcs,
                                           crossbar_speedup,
                                           latency,
                                           network::spare_channels(spare_vcs),
                                           network::buffer_parts(buffer_parts),
                                           skip};
           }),
           py::kw_only(), "packet_bytes"_a = network::PacketOptions().packet_bytes,
           "flit_bytes"_a = network::PacketOptions().flit_bytes,
           "buffer_bytes"_a = network::PacketOptions().buffer_bytes, "num_vcs"_a = network::PacketOptions().num_vcs,
           "crossbar_speedup"_a = network::PacketOptions().crossbar_speedup, "buffer_latency_ps"_a = -1,
           "spare_vcs"_a = "output", "buffer_parts"_a = "routing", "skip"_a = false,
           "num_vcs 0: as many as the routing takes. buffer_latency_ps below 0: the fabric's own.")
      .def_readonly("packet_bytes", &network::PacketOptions::packet_bytes, "The most of a message in one packet.")
      .def_readonly("flit_bytes", &network::PacketOptions::flit_bytes, "What a switch waits for.")
      .def_readonly("buffer_bytes", &network::PacketOptions::buffer_bytes, "Of a port.")
      .def_readonly("crossbar_speedup", &network::PacketOptions::crossbar_speedup, "Outputs fed by a port at once.");
  module.def("spare_channel_names", &network::spare_channel_names,
             "What may tell packets on spare virtual channels apart.");
  module.def("buffer_parts_names", &network::buffer_parts_names, "How virtual channels may part buffers.");
  module.def("engine_names", &network::engine_names, "Names of the registered engines (fidelities).");
  module.def("engine_traits", &network::engine_traits, "fidelity"_a, "Traits of a registered engine.");
}

}  // namespace rostam::bindings
