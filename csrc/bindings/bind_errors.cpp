// Maps the core's errors onto the classes of rostam_py.errors.
#include "bindings/bindings.h"
#include "sim/errors.h"

namespace py = pybind11;

namespace rostam::bindings {

namespace {

void raise_as(const char* name, const char* message) {
  const py::object type = py::module_::import("rostam_py.errors").attr(name);
  PyErr_SetString(type.ptr(), message);
}

}  // namespace

void bind_errors(py::module_&) {
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const ConfigError& error) {
      raise_as("ConfigError", error.what());
    } catch (const NoRouteError& error) {
      raise_as("NoRouteError", error.what());
    } catch (const DeadlockError& error) {
      raise_as("DeadlockError", error.what());
    } catch (const InternalError& error) {
      raise_as("InternalError", error.what());
    }
  });
}

}  // namespace rostam::bindings
