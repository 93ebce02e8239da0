// Binds the fabric floor: building by name, links as NumPy arrays, failures.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "bindings/work.h"
#include "fabric/alike.h"
#include "fabric/registry.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace rostam::bindings {

namespace {

using fabric::Fabric;
// pybind11 holds no pointers to const; the class offers Python nothing that changes a fabric.
using FabricPointer = std::shared_ptr<Fabric>;
using Numbers = py::array_t<double, py::array::c_style | py::array::forcecast>;

FabricPointer make(const std::string& name, const std::map<std::string, Numbers>& parameters) {
  fabric::Params params;
  for (const auto& [key, numbers] : parameters) {
    params.set(key, std::vector<double>(numbers.data(), numbers.data() + numbers.size()));
  }
  const Work work;
  return std::const_pointer_cast<Fabric>(fabric::make_fabric(name, params));
}

template <typename Value, typename Get>
py::array_t<Value> column(const Fabric& self, Get get) {
  py::array_t<Value> values(static_cast<py::ssize_t>(self.links().size()));
  Value* out = values.mutable_data();
  for (size_t i = 0; i < self.links().size(); ++i) out[i] = get(i);
  return values;
}

py::dict link_columns(const Fabric& self) {
  const std::vector<fabric::Link>& links = self.links();
  return py::dict(
      "src"_a = column<int32_t>(self, [&](size_t i) { return links[i].src; }),
      "dst"_a = column<int32_t>(self, [&](size_t i) { return links[i].dst; }),
      "bandwidth_bytes_per_s"_a = column<double>(self, [&](size_t i) { return links[i].capacity_bytes_per_s; }),
      "latency_s"_a = column<double>(self, [&](size_t i) { return links[i].latency.seconds(); }),
      "cable"_a = column<int32_t>(self, [&](size_t i) { return links[i].cable; }),
      "bundle"_a = column<int32_t>(self, [&](size_t i) { return links[i].bundle; }),
      "is_failed"_a = column<bool>(self, [&](size_t i) { return self.is_link_failed(static_cast<int32_t>(i)); }));
}

FabricPointer with_failures(const Fabric& self, std::vector<int32_t> switches, std::vector<int32_t> cables,
                            std::vector<int32_t> accelerators) {
  const Work work;
  return std::const_pointer_cast<Fabric>(
      self.with_failures({std::move(switches), std::move(cables), std::move(accelerators)}));
}

FabricPointer with_factors(const Fabric& self, const std::vector<double>& capacity, const std::vector<double>& latency,
                           double forward_latency) {
  return std::const_pointer_cast<Fabric>(self.with_factors(capacity, latency, forward_latency));
}

py::array_t<int32_t> distances(const Fabric& self, int32_t accelerator) {
  const ShortWork work;
  const std::vector<int32_t> hops = self.search_distances(accelerator);
  py::array_t<int32_t> of_vertex(self.num_vertices());
  for (int32_t v = 0; v < self.num_vertices(); ++v) {
    of_vertex.mutable_data()[v] = self.distance_from(v, hops);
  }
  return of_vertex;
}

}  // namespace

void bind_fabric(py::module_& module) {
  module.def("fabric_names", &fabric::fabric_names, "Names of the registered fabrics.");
  module.def("draw_parts", &fabric::draw_parts, "num_parts"_a, "count"_a, "seed"_a,
             "Positions of `count` parts, each at most once, drawn with `seed`.");
  py::class_<Fabric, FabricPointer>(module, "Fabric",
                                    "Accelerators, switches and directed links of one plane, frozen once built.")
      .def_property_readonly("name", &Fabric::name, "Registered name.")
      .def_property_readonly("num_accelerators", &Fabric::num_accelerators, "Accelerators, failed ones included.")
      .def_property_readonly("num_switches", &Fabric::num_switches, "Switches, failed ones included.")
      .def_property_readonly("num_vertices", &Fabric::num_vertices,
                             "Accelerators, switches, then NICs and switches inside servers.")
      .def_property_readonly(
          "accelerators_forward", [](const Fabric& self) { return self.num_accelerators() > 0 && self.can_forward(0); },
          "True if paths may go through accelerators.")
      .def_property_readonly("num_cables", &Fabric::num_cables,
                             "Cables of this plane outside servers, failed ones included.")
      .def_property_readonly(
          "failed_switches", [](const Fabric& self) { return self.failures().switches; }, "Sorted ids from 0.")
      .def_property_readonly(
          "failed_links", [](const Fabric& self) { return self.failures().cables; }, "Sorted cable ids.")
      .def_property_readonly(
          "failed_accelerators", [](const Fabric& self) { return self.failures().accelerators; }, "Sorted ids.")
      .def_property_readonly(
          "num_directed_links", [](const Fabric& self) { return self.links().size(); }, "Entries of link_columns.")
      .def("link_columns", &link_columns, "Directed links as a dict of arrays, one entry per link.")
      .def_property_readonly("num_boards", &Fabric::num_boards, "Boards, failed ones included; 0 without boards.")
      .def("accelerators_on", &Fabric::accelerators_on, "boards"_a, "Ids of the accelerators of these boards.")
      .def("healthy_accelerators", &Fabric::healthy_accelerators, "Ids of the accelerators that work.")
      .def("diameter", &Fabric::diameter, py::call_guard<Work>(),
           "Longest shortest path between working accelerators, in links.")
      .def("search_distances", &distances, "accelerator"_a,
           "Hops from every vertex to `accelerator` by breadth-first search; 2^30 where there is no path.")
      .def(
          "first_alike", [](const Fabric& self) { return fabric::first_alike(self); },
          "For every accelerator the first that is as far from all others, -1 where it has failed.")
      .def(
          "closed_form_distance",
          [](const Fabric& self, int32_t vertex, int32_t accelerator) {
            return self.closed_form() == nullptr ? -1 : self.closed_form()->distance(vertex, accelerator);
          },
          "vertex"_a, "accelerator"_a, "Hops by the distance function; -1 where only search is left.")
      .def("with_failures", &with_failures, "switches"_a, "links"_a, "accelerators"_a,
           "The same fabric with these switches, cables and accelerators failed in addition.")
      .def("with_factors", &with_factors, "bandwidth"_a, "latency"_a, "forward_latency"_a,
           "The same fabric with each link's bandwidth multiplied, and its latency divided, by a factor of its own.")
      .def(
          "working_parts", &Fabric::working_parts, "kind"_a, "scope"_a,
          "Ids of working 'switches', 'links', 'accelerators' or 'boards'; links of 'network', 'host' or 'all' cables.")
      .def("cut_off", &Fabric::cut_off, py::call_guard<Work>(),
           "Working accelerators that failures have cut off from the others.");
  module.def("make_fabric", &make, "name"_a, "parameters"_a,
             "Build the fabric `name` from plain arguments: {name: number or array}, in SI units.");
}

}  // namespace rostam::bindings
