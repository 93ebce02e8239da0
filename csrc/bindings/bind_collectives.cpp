// Collective schedules: names, and every transfer of one, for tests and for tools that draw them.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <optional>
#include <tuple>

#include "bindings/bindings.h"
#include "bindings/layout.h"
#include "bindings/work.h"
#include "collectives/hamiltonian.h"
#include "collectives/region_costs.h"
#include "collectives/schedule.h"
#include "collectives/steps.h"
#include "collectives/tree_packing.h"

namespace py = pybind11;

namespace rostam::bindings {

namespace {

using collectives::Schedule;

std::unique_ptr<Schedule> make(const std::string& collective, const std::string& algorithm, int32_t num_ranks,
                               const GroupSizes& group_size, collectives::Sides grid, int32_t num_pieces, Rings rings,
                               Rings trees, Rings parts) {
  return collectives::make_schedule(
      collective, algorithm, num_ranks,
      make_layout(group_size, std::move(grid), num_pieces, std::move(rings), std::move(trees), std::move(parts)));
}

py::array_t<int32_t> as_array(const std::vector<int32_t>& values) {
  return py::array_t<int32_t>(static_cast<py::ssize_t>(values.size()), values.data());
}

py::tuple as_tuple(const collectives::StepPattern& pattern) {
  return py::make_tuple(pattern.count, as_array(pattern.src), as_array(pattern.dst), as_array(pattern.num_chunks));
}

py::list distinct_steps(const Schedule& schedule) {
  const ShortWork work;
  py::list steps;
  for (const collectives::StepPattern& pattern : collectives::distinct_steps(schedule)) steps.append(as_tuple(pattern));
  return steps;
}

py::tuple region_costs(const std::shared_ptr<routing::RouteTable>& routes, const Schedule& schedule,
                       const std::vector<std::vector<int32_t>>& groups) {
  collectives::RegionCosts costs;
  {
    const Work work;
    costs = collectives::region_costs(*routes, schedule, groups);
  }
  return py::make_tuple(
      py::array_t<int64_t>(static_cast<py::ssize_t>(costs.latency_ps.size()), costs.latency_ps.data()),
      py::array_t<double>(static_cast<py::ssize_t>(costs.loads.size()), costs.loads.data()), costs.most_chunks);
}

using Way = std::tuple<int32_t, int32_t, std::vector<int32_t>, std::vector<double>>;

std::optional<std::vector<std::vector<int32_t>>> pack_trees(int32_t num_ranks, const std::vector<Way>& ways,
                                                            std::vector<double> capacity, int32_t most_trees) {
  const Work work;
  collectives::TreeWays given{num_ranks, {}, std::move(capacity)};
  for (const auto& [src, dst, links, shares] : ways) {
    given.ways.push_back({src, dst, links, shares});
  }
  return collectives::pack_trees(given, most_trees);
}

}  // namespace

collectives::Layout make_layout(const GroupSizes& group_size, collectives::Sides grid, int32_t num_pieces, Rings rings,
                                Rings trees, Rings parts) {
  const bool is_one = std::holds_alternative<int32_t>(group_size);
  return {is_one ? std::vector<int32_t>{std::get<int32_t>(group_size)} : std::get<std::vector<int32_t>>(group_size),
          std::move(grid),
          num_pieces,
          std::move(rings),
          std::move(trees),
          std::move(parts)};
}

void bind_collectives(py::module_& module) {
  using collectives::Transfer;
  module.def("schedule_names", &collectives::schedule_names, "All (collective, algorithm) pairs.");
  module.def("needs_grid", &collectives::needs_grid, py::arg("collective"), py::arg("algorithm"),
             "True for algorithms that run on a grid of ranks.");
  module.def("needs_2d_grid", &collectives::needs_2d_grid, py::arg("collective"), py::arg("algorithm"),
             "True for algorithms that run on a grid of two sides only.");
  module.def("uses_servers", &collectives::uses_servers, py::arg("collective"), py::arg("algorithm"),
             "True for algorithms that use the NICs of all ranks of a server.");
  module.def("models_bandwidth", &collectives::models_bandwidth, py::arg("collective"), py::arg("algorithm"),
             "True for models of bandwidth, whose transfers carry no data to follow.");
  module.def("reduces_in_switches", &collectives::reduces_in_switches, py::arg("collective"), py::arg("algorithm"),
             "True for algorithms whose data switches add up or copy on their way.");
  module.def("works_in_pieces", &collectives::works_in_pieces, py::arg("collective"), py::arg("algorithm"),
             "True for algorithms that take the buffer in pieces through phases inside and between groups.");
  module.def("is_by_name_only", &collectives::is_by_name_only, py::arg("collective"), py::arg("algorithm"),
             "True for algorithms that a default choice does not take.");
  module.def("is_pipelined", &collectives::is_pipelined, py::arg("collective"), py::arg("algorithm"),
             "True for algorithms whose pieces of the buffer go one behind the other through all of their steps.");
  module.def("takes_direct_links", &collectives::takes_direct_links, py::arg("collective"), py::arg("algorithm"),
             "True for algorithms that a default choice takes where direct links join the ranks only.");
  module.def("takes_trees", &collectives::takes_trees, py::arg("collective"), py::arg("algorithm"),
             "True for algorithms that run along spanning trees, which are given.");
  module.def("pack_trees", &pack_trees, py::arg("num_ranks"), py::arg("ways"), py::arg("capacity"),
             py::arg("most_trees"),
             "Spanning trees of every rank, as Schedule takes them, that load the fullest link little. ways: of every\n"
             "pair (src, dst, links, shares); capacity: of each link, any unit. None where some rank reaches not all.");
  module.def(
      "hamiltonian_cycles",
      [](int32_t rows, int32_t columns) {
        const auto cycles = collectives::hamiltonian_cycles({rows, columns});
        return py::make_tuple(as_array(cycles.red), as_array(cycles.green));
      },
      py::arg("rows"), py::arg("columns"), "Ranks along two edge-disjoint Hamiltonian cycles of the torus.");
  py::class_<Transfer>(module, "Transfer", "Chunks that one rank sends to a peer in one step.")
      .def_readonly("peer", &Transfer::peer)
      .def_readonly("source_chunk", &Transfer::source_chunk)
      .def_readonly("target_chunk", &Transfer::target_chunk)
      .def_readonly("num_chunks", &Transfer::num_chunks)
      .def_readonly("reduces", &Transfer::reduces)
      .def_readonly("joins_last", &Transfer::joins_last);
  py::class_<Schedule>(module, "Schedule", "A collective algorithm as a generator of transfers.")
      .def(
          py::init(&make), py::arg("collective"), py::arg("algorithm"), py::arg("num_ranks"), py::arg("group_size") = 1,
          py::arg("grid") = collectives::Sides(), py::arg("num_pieces") = 1, py::arg("rings") = Rings(),
          py::arg("trees") = Rings(), py::arg("parts") = Rings(),
          "group_size: ranks of every server, or of each. grid: its sides, row-major, none without one. num_pieces: of "
          "the buffer, of hierarchical. rings: orders of a server's ranks, the channels of a ring. trees: of "
          "spanning_trees, each its parents and then its stages. parts: of an all_to_all, the chunks that each rank "
          "has "
          "for each. Throws ConfigError for an unknown pair or what does "
          "not fit the ranks.")
      .def_property_readonly("num_ranks", [](const Schedule& s) { return s.shape().num_ranks; })
      .def_property_readonly("num_steps", [](const Schedule& s) { return s.shape().num_steps; })
      .def_property_readonly("num_chunks", [](const Schedule& s) { return s.shape().num_chunks; })
      .def_property_readonly("is_in_place", [](const Schedule& s) { return s.shape().is_in_place; })
      .def_property_readonly("has_ordered_arrivals", [](const Schedule& s) { return s.shape().has_ordered_arrivals; })
      .def_property_readonly("is_synchronous", [](const Schedule& s) { return s.shape().is_synchronous; })
      .def("distinct_steps", &distinct_steps,
           "(steps alike, senders, receivers, chunks of each message) of every distinct step.")
      .def(
          "messages_of", [](const Schedule& s, int32_t step) { return as_tuple(collectives::step_pattern(s, step)); },
          py::arg("step"), "(1, senders, receivers, chunks of each message) of one step.")
      .def_property_readonly(
          "lead", [](const Schedule& s) { return s.shape().lead; },
          "Steps that a rank may be ahead of the messages it awaits.")
      .def_property_readonly("total_chunks_sent", &Schedule::total_chunks_sent,
                             "Closed form of the chunks all ranks send.")
      .def_property_readonly("total_chunks_received", &Schedule::total_chunks_received,
                             "Closed form of the chunks all ranks receive.")
      .def_property_readonly(
          "loads_as_messages", &Schedule::loads_as_messages,
          "Whether messages load links as what they stand for does: not those of pull, push and multicast.")
      .def(
          "region_transfers",
          [](const Schedule& schedule, int32_t rank, int32_t step) {
            std::vector<collectives::RegionTransfer> transfers;
            schedule.region_transfers(rank, step, transfers);
            const std::vector<collectives::Region> regions = schedule.regions();
            std::vector<std::tuple<std::string, std::vector<int32_t>, int32_t>> found;
            for (const collectives::RegionTransfer& one : transfers) {
              const collectives::Region& region = regions[static_cast<size_t>(one.region)];
              std::vector<int32_t> members;
              for (int32_t i = 0; i < region.size; ++i) members.push_back(region.member(rank, i));
              found.emplace_back(routing::name_of(region.op), std::move(members), one.num_chunks);
            }
            return found;
          },
          py::arg("rank"), py::arg("step"),
          "(pull, push, reduce or multicast; ranks of the region; chunks that they send together) of what a rank owns.")
      .def("num_receives", &Schedule::num_receives, py::arg("rank"), py::arg("step"))
      .def(
          "sends",
          [](const Schedule& schedule, int32_t rank, int32_t step) {
            std::vector<Transfer> transfers;
            schedule.sends(rank, step, transfers);
            return transfers;
          },
          py::arg("rank"), py::arg("step"), "What `rank` sends in `step`.");
  module.def(
      "region_costs", &region_costs, py::arg("routes"), py::arg("schedule"), py::arg("groups"),
      "(latency [ps] of every step, chunks on every engine link in all steps) of a schedule that switches serve,\n"
      "all groups of accelerators at once.");
}

}  // namespace rostam::bindings
