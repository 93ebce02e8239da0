// Binds the routing floor: routes of pairs, for inspection and tests; engines use routers inside the core.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "routing/registry.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace rostam::bindings {

namespace {

using routing::Router;

std::shared_ptr<Router> make(const std::string& name, std::shared_ptr<fabric::Fabric> fabric, double message_overhead_s,
                             bool enable_bundling) {
  routing::RouterOptions options;
  options.message_overhead = SimTime::from_seconds(message_overhead_s);
  options.enable_bundling = enable_bundling;
  return routing::make_router(name, std::move(fabric), options);
}

py::tuple route(const Router& self, int32_t src, int32_t dst, uint64_t message_hash) {
  const routing::Route found = self.route(src, dst, message_hash);
  py::array_t<int32_t> links(static_cast<py::ssize_t>(found.links.size()));
  py::array_t<double> shares(static_cast<py::ssize_t>(found.links.size()));
  for (size_t i = 0; i < found.links.size(); ++i) {
    links.mutable_data()[i] = found.links[i].link;
    shares.mutable_data()[i] = found.links[i].share;
  }
  return py::make_tuple(links, shares, found.latency.ps());
}

}  // namespace

void bind_routing(py::module_& module) {
  module.def("routing_names", &routing::routing_names, "Names of the registered routings.");
  module.def("routing_summary", &routing::routing_summary, "name"_a, "One line on a registered routing.");
  module.def("make_router", &make, "name"_a, "fabric"_a, "message_overhead_s"_a = 0.0, "enable_bundling"_a = true,
             "Build the routing `name` over `fabric`; the router keeps the fabric alive.");
  py::class_<Router, std::shared_ptr<Router>>(module, "Router",
                                              "Routes of accelerator pairs over engine links (links or bundles).")
      .def("route", &route, "src"_a, "dst"_a, "message_hash"_a = 0,
           "Return (engine links, share of the flow on each, latency in ps) of a message.")
      .def_property_readonly("is_hash_free", &Router::is_hash_free, "True if routes depend on the pair alone.")
      .def_property_readonly(
          "capacities",
          [](const Router& self) {
            return py::array_t<double>(static_cast<py::ssize_t>(self.capacities().size()), self.capacities().data());
          },
          "Capacity of every engine link [bytes/s].")
      .def_property_readonly("members", &Router::members, "The fabric links behind every engine link.");
}

}  // namespace rostam::bindings
