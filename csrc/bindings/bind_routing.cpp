// Binds the routing floor: routes of pairs, for inspection and tests; engines use route tables inside the core.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>

#include "bindings/bindings.h"
#include "bindings/work.h"
#include "flow/adaptive_rates.h"
#include "routing/dependencies.h"
#include "routing/dfsssp.h"
#include "routing/disjoint_paths.h"
#include "routing/layers.h"
#include "routing/registry.h"
#include "routing/route_table.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace rostam::bindings {

namespace {

using routing::Route;
using routing::RouteTable;
// Planes that are alike: one of them, and how many there are.
using Planes = std::vector<std::pair<std::shared_ptr<fabric::Fabric>, int32_t>>;

std::shared_ptr<RouteTable> make(const std::string& name, const Planes& planes, double message_overhead_s,
                                 bool enable_bundling) {
  routing::PolicyOptions options;
  options.message_overhead = SimTime::from_seconds(message_overhead_s);
  options.enable_bundling = enable_bundling;
  const Work work;
  std::vector<routing::PlaneClass> classes;
  for (const auto& [fabric, num_planes] : planes) {
    const auto after = [name, given = fabric, options](const fabric::Failures& failures) {
      return routing::make_policy(name, given->with_failures(failures), options);
    };
    classes.push_back({routing::make_policy(name, fabric, options), num_planes, after});
  }
  return std::make_shared<RouteTable>(std::move(classes));
}

py::tuple route(const RouteTable& self, int32_t src, int32_t dst, uint64_t hash) {
  const ShortWork work;
  const Route found = *self.route_of({src, dst, hash});
  py::array_t<int32_t> links(static_cast<py::ssize_t>(found.links.size()));
  py::array_t<double> shares(static_cast<py::ssize_t>(found.links.size()));
  for (size_t i = 0; i < found.links.size(); ++i) {
    links.mutable_data()[i] = found.links[i].link;
    shares.mutable_data()[i] = found.links[i].share;
  }
  return py::make_tuple(links, shares, found.latency.ps());
}

// One entry per lane: first and end of its links, latency [ps], planes, bytes per second, bytes of `num_bytes`.
py::list lanes(const RouteTable& self, int32_t src, int32_t dst, uint64_t hash, int64_t num_bytes) {
  const ShortWork work;
  const Route found = *self.route_of({src, dst, hash});
  py::list all;
  if (found.lanes.empty()) return all;
  const std::vector<int64_t> bytes = routing::lane_bytes(found, num_bytes);
  for (size_t k = 0; k < found.lanes.size(); ++k) {
    const routing::Lane& lane = found.lanes[k];
    all.append(
        py::make_tuple(lane.first_link, lane.end_link, lane.latency.ps(), lane.num_planes, lane.bytes_per_s, bytes[k]));
  }
  return all;
}

py::tuple steps(const RouteTable& self, int32_t src, int32_t dst, uint64_t hash) {
  const ShortWork work;
  const Route found = *self.route_of({src, dst, hash}, routing::Detail::kSteps);
  py::list nodes, hops;
  for (const routing::Steps::Node& node : found.steps.nodes) {
    nodes.append(py::make_tuple(node.vertex, node.phase, node.first_hop, node.end_hop));
  }
  for (const routing::Steps::Hop& hop : found.steps.hops) {
    hops.append(py::make_tuple(hop.link, hop.node, hop.channel));
  }
  return py::make_tuple(nodes, hops);
}

py::array_t<int32_t> forwarding_tables(const std::shared_ptr<fabric::Fabric>& fabric, int32_t num_layers) {
  std::vector<int32_t> flat;
  int32_t count = 0;
  {
    const Work work;
    const routing::Layers layers(*fabric, num_layers);
    flat = layers.flat();
    count = layers.num_switches();
  }
  py::array_t<int32_t> tables({num_layers, count, count});
  std::copy(flat.begin(), flat.end(), tables.mutable_data());
  return tables;
}

std::vector<int64_t> count_disjoint(const std::shared_ptr<fabric::Fabric>& fabric, int32_t num_layers, int32_t most) {
  const Work work;
  return routing::count_disjoint(routing::Layers(*fabric, num_layers), most);
}

int32_t virtual_layers(const std::shared_ptr<fabric::Fabric>& fabric) {
  const Work work;
  routing::Dfsssp tables(*fabric);
  tables.assign_layers();
  return tables.num_layers();
}

// One entry per class of planes.
py::list dependencies(const RouteTable& self, const std::vector<int32_t>& members, const std::string& scheme) {
  py::list all;
  for (const routing::PlaneClass& planes : self.planes()) {
    routing::Dependencies found;
    {
      const Work work;
      found = routing::find_dependencies(*planes.policy, members, routing::channel_scheme(scheme));
    }
    std::vector<std::pair<int32_t, int32_t>> cycle;  // fabric links: engine links are single ones
    for (const routing::VirtualChannel& one : found.cycle) {
      cycle.emplace_back(planes.policy->links().members[static_cast<size_t>(one.link)].front(), one.channel);
    }
    all.append(py::dict("num_channels"_a = found.num_channels, "num_dependencies"_a = found.num_dependencies,
                        "num_virtual_channels"_a = found.num_virtual_channels, "num_pairs"_a = found.num_pairs,
                        "num_unrouted"_a = found.num_unrouted, "cycle"_a = cycle));
  }
  return all;
}

py::tuple adaptive_rates(const RouteTable& self, const std::vector<int32_t>& src, const std::vector<int32_t>& dst,
                         const std::vector<double>& rate_caps) {
  const ShortWork work;
  std::vector<Route> routes;
  for (size_t i = 0; i < src.size(); ++i)
    routes.push_back(self.route_of({src[i], dst.at(i), 0}, routing::Detail::kSteps).value());
  std::vector<flow::Demand> demands;
  for (size_t i = 0; i < src.size(); ++i) {
    demands.push_back({&routes[i].steps, 1, rate_caps.empty() ? 0 : rate_caps.at(i), &routes[i].links});
  }
  std::vector<flow::Division> found;
  {
    const Work others_run;
    found = flow::adaptive_rates(demands, self.links().capacities);
  }
  std::vector<double> rates, loads(self.links().capacities.size(), 0.0);
  for (const flow::Division& one : found) {
    rates.push_back(one.rate);
    for (const routing::LinkShare& part : one.shares) loads[static_cast<size_t>(part.link)] += part.share * one.rate;
  }
  return py::make_tuple(rates, loads);
}

void set_route(RouteTable& self, int32_t src, int32_t dst, uint64_t hash, const std::vector<int32_t>& links,
               const std::vector<double>& shares, int64_t latency_ps) {
  Route given;
  given.src = src;
  given.dst = dst;
  given.latency = SimTime::from_ps(latency_ps);
  for (size_t i = 0; i < links.size(); ++i) given.links.push_back({links[i], shares.at(i)});
  self.set_route({src, dst, hash}, std::move(given));
}

}  // namespace

void bind_routing(py::module_& module) {
  module.def("routing_names", &routing::routing_names, "Names of the registered routings.");
  module.def(
      "parse_routing",
      [](const std::string& text) {
        const routing::RoutingChoice choice = routing::parse_routing(text);
        return py::make_tuple(choice.name, choice.number);
      },
      "text"_a, "Return (registered name, number it takes, 0 for none) of a routing such as layers:8.");
  module.def("routing_summary", &routing::routing_summary, "name"_a, "What a routing does, in one line.");
  py::class_<RouteTable, std::shared_ptr<RouteTable>>(
      module, "RouteTable", "Routes of accelerator pairs over engine links (links or bundles) of all planes.")
      .def("route", &route, "src"_a, "dst"_a, "message_hash"_a = 0,
           "Return (engine links, share of the message on each, latency in ps) of a message.")
      .def("lanes", &lanes, "src"_a, "dst"_a, "message_hash"_a = 0, "num_bytes"_a = 0,
           "Return (first link, end, latency in ps, planes, bytes/s, bytes of num_bytes) per class of planes that "
           "differ.")
      .def("steps", &steps, "src"_a, "dst"_a, "message_hash"_a = 0,
           "Return ([(vertex, phase, first hop, end)], [(engine link, node, virtual channel)]) that packets may walk, "
           "by level.")
      .def("set_route", &set_route, "src"_a, "dst"_a, "message_hash"_a, "links"_a, "shares"_a, "latency_ps"_a,
           "Messages of the channel take these links from now on.")
      .def(
          "unset_route",
          [](RouteTable& self, int32_t src, int32_t dst, uint64_t hash) { self.unset_route({src, dst, hash}); },
          "src"_a, "dst"_a, "message_hash"_a, "Back to the policy's route.")
      .def_property_readonly("version", &RouteTable::version, "Counts changes of routes.")
      .def_property_readonly("notes", py::cpp_function(&RouteTable::notes, py::call_guard<Work>()),
                             "What a reader should know of the routing on this fabric, in sentences.")
      .def_property_readonly("is_adaptive", &RouteTable::is_adaptive,
                             "True if engines divide messages over their paths: routes' shares are a first guess.")
      .def_property_readonly("knows_trees", &RouteTable::knows_trees,
                             "True if transfers may be trees, which switches add up or copy along.")
      .def_property_readonly("is_hash_free", &RouteTable::is_hash_free, "True if routes depend on the pair alone.")
      .def_property_readonly(
          "capacities",
          [](const RouteTable& self) {
            const std::vector<double>& values = self.links().capacities;
            return py::array_t<double>(static_cast<py::ssize_t>(values.size()), values.data());
          },
          "Capacity of every engine link [bytes/s].")
      .def_property_readonly(
          "classes", [](const RouteTable& self) { return self.links().classes; }, "Class of every engine link.")
      .def_property_readonly(
          "of_link",
          [](const RouteTable& self) {
            const std::vector<int32_t>& values = self.links().of_link;
            return py::array_t<int32_t>(static_cast<py::ssize_t>(values.size()), values.data());
          },
          "The engine link of every fabric link, numbered on from one class of planes to the next.")
      .def_property_readonly(
          "members", [](const RouteTable& self) { return self.links().members.to_vectors(); },
          "The fabric links behind every engine link, numbered on from one class of planes to the next.");
  module.def("adaptive_rates", &adaptive_rates, "routes"_a, "src"_a, "dst"_a, "rate_caps"_a = std::vector<double>{},
             "Return (rate of each flow, load of every engine link) [bytes/s] of flows divided over minimal paths: "
             "max-min fair rates, of the divisions the least sum of squared loads. A cap of 0 is none.");
  module.def("channel_dependencies", &dependencies, "routes"_a, "members"_a, "scheme"_a,
             "Per class of planes: counts of virtual channels and their dependencies, and a cycle [(link, channel)].");
  module.def("forwarding_tables", &forwarding_tables, "fabric"_a, "num_layers"_a,
             "Next switch by (layer, switch, destination), -1 where there is none.");
  module.def("count_disjoint", &count_disjoint, "fabric"_a, "num_layers"_a, "most"_a,
             "Pairs of switches by the most paths of layers without a common cable, 0 to `most` or more.");
  module.def("virtual_layers", &virtual_layers, "fabric"_a, "Virtual layers that dfsssp gives the paths of a plane.");
  module.def("channel_schemes", &routing::channel_schemes, "Names of the ways to number virtual channels.");
  module.def("make_routes", &make, "name"_a, "planes"_a, "message_overhead_s"_a = 0.0, "enable_bundling"_a = true,
             "Routes by the routing `name` over planes: [(fabric, number of planes like it)]; kept alive.");
}

}  // namespace rostam::bindings
