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
      .def_readonly("summary", &network::EngineTraits::summary, "One line, for lists.");
  module.def("engine_names", &network::engine_names, "Names of the registered engines (fidelities).");
  module.def("engine_traits", &network::engine_traits, "fidelity"_a, "Traits of a registered engine.");
}

}  // namespace rostam::bindings
