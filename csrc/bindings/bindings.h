// One bind_* function a floor, called by module.cpp in dependency order.
#pragma once

#include <pybind11/pybind11.h>

namespace rostam::bindings {

void bind_errors(pybind11::module_& module);
void bind_fabric(pybind11::module_& module);
void bind_routing(pybind11::module_& module);
void bind_network(pybind11::module_& module);
void bind_analytic(pybind11::module_& module);
void bind_collectives(pybind11::module_& module);
void bind_circuits(pybind11::module_& module);
void bind_assignment(pybind11::module_& module);
void bind_runtime(pybind11::module_& module);

}  // namespace rostam::bindings
