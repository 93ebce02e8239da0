// The Python module rostam_py._core: simulator core. Logic-free; each floor binds itself.
#include "bindings/bindings.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "C++ core of rostam: fabrics, routing, flow engine, collectives, sessions.";
  using namespace rostam::bindings;
  bind_errors(module);
  bind_fabric(module);
  bind_routing(module);
  bind_network(module);
  bind_analytic(module);
  bind_collectives(module);
  bind_circuits(module);
  bind_assignment(module);
  bind_runtime(module);
}
