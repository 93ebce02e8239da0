// Binds the network floor: which engines there are and what each can do. Sessions make them inside the core.
#include <pybind11/stl.h>

#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/work.h"
#include "network/buffer_names.h"
#include "network/registry.h"
#include "packet/table_walk.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace rostam::bindings {

namespace {

// As packet::TableLink.
using LinkRow = std::tuple<int32_t, int32_t, int32_t, double, int64_t>;

packet::TableTrees table_trees(int32_t num_members, int32_t num_vertices, const std::vector<LinkRow>& links,
                               std::vector<int32_t> home, std::vector<std::vector<int32_t>> parent) {
  packet::TableTrees trees{num_members, num_vertices, {}, std::move(home), std::move(parent)};
  for (const auto& [src, dst, back, bytes_per_s, latency_ps] : links) {
    trees.links.push_back({src, dst, back, bytes_per_s, SimTime::from_ps(latency_ps)});
  }
  return trees;
}

void bind_tables(py::module_& module) {
  using packet::TableOptions;
  using packet::TableResult;
  py::class_<packet::TableTrees>(module, "TableTrees", "Trees of switches that add up, one for each owner.")
      .def(py::init(&table_trees), py::kw_only(), "num_members"_a, "num_vertices"_a, "links"_a, "home"_a, "parent"_a,
           "links: (src, dst, link back, bytes/s, latency and passage in ps). home: of each owner. parent: of each\n"
           "owner the link of every vertex towards home, or -1.");
  py::class_<TableOptions>(module, "TableOptions", "How an all-reduce goes through tables.")
      .def(py::init([](bool is_pull, int64_t packets_per_owner) {
             TableOptions options;
             options.is_pull = is_pull;
             options.packets_per_owner = packets_per_owner;
             return options;
           }),
           py::kw_only(), "is_pull"_a, "packets_per_owner"_a)
      .def_readwrite("packet_bytes", &TableOptions::packet_bytes, "On a link.")
      .def_readwrite("request_bytes", &TableOptions::request_bytes, "On a link, of a pull.")
      .def_readwrite("entries", &TableOptions::entries, "Of each switch's table.")
      .def_readwrite("speedup", &TableOptions::speedup, "Rate inside a switch over its ports'.")
      .def_readwrite("injection", &TableOptions::injection, "Share of their rate at which members send.")
      .def_property(
          "memory_ps", [](const TableOptions& own) { return own.memory.ps(); },
          [](TableOptions& own, int64_t ps) { own.memory = SimTime::from_ps(ps); }, "An access to memory.")
      .def_readwrite("packets_per_wave", &TableOptions::packets_per_wave, "Of an owner.")
      .def_readwrite("waves", &TableOptions::waves, "Under way at most.")
      .def_property(
          "most_skew_ps", [](const TableOptions& own) { return own.most_skew.ps(); },
          [](TableOptions& own, int64_t ps) { own.most_skew = SimTime::from_ps(ps); }, "Of the members' starts.")
      .def_readwrite("draws_victims", &TableOptions::draws_victims, "In place of the least recently used.")
      .def_readwrite("seed", &TableOptions::seed, "Of operands, starts and victims.");
  py::class_<TableResult>(module, "TableResult", "What a walk through tables took.")
      .def_property_readonly(
          "time_ps", [](const TableResult& own) { return own.time.ps(); }, "Until the last sum is there.")
      .def_readonly("num_evicted", &TableResult::num_evicted, "Entries evicted.")
      .def_readonly("num_passed", &TableResult::num_passed, "Requests without an entry at a switch between.")
      .def_readonly("most_entries", &TableResult::most_entries, "That a table held at once.")
      .def_readonly("link_bytes", &TableResult::link_bytes, "That each link carried.");
  module.def("walk_tables", &packet::walk_tables, "trees"_a, "options"_a, py::call_guard<Work>(),
             "An all-reduce through reduction tables, packet by packet, its integers added up and checked.");
}

}  // namespace

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
  bind_tables(module);
}

}  // namespace rostam::bindings
