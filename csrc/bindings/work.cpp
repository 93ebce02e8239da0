#include "bindings/work.h"

namespace py = pybind11;

namespace rostam::bindings {

void stop_on_signal() {
  py::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

}  // namespace rostam::bindings
