// Maps the core's errors onto the classes of rostam_py.errors, memory that runs out among them.
#include <new>

#include "bindings/bindings.h"
#include "sim/errors.h"
#include "sim/memory.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace rostam::bindings {

namespace {

void raise_as(const char* name, const char* message) {
  const py::object type = py::module_::import("rostam_py.errors").attr(name);
  PyErr_SetString(type.ptr(), message);
}

}  // namespace

void bind_errors(py::module_& module) {
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
    } catch (const std::bad_alloc&) {
      raise_as("HostMemoryError",
               "the memory of this computer, or what its limits leave of it, does not suffice; take a smaller system");
    }
  });
  module.def("require_memory", &require_memory, "bytes"_a, "what"_a, "advice"_a,
             "ConfigError 'WHAT need about X GB, but Y GB are available; ADVICE' where the bytes are more than that.");
}

}  // namespace rostam::bindings
