// Collective schedules: names, and every transfer of one, for tests and for tools that draw them.
#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "collectives/schedule.h"

namespace py = pybind11;

namespace rostam::bindings {

void bind_collectives(py::module_& module) {
  using collectives::Schedule;
  using collectives::Transfer;
  module.def("schedule_names", &collectives::schedule_names, "All (collective, algorithm) pairs.");
  py::class_<Transfer>(module, "Transfer", "Chunks that one rank sends to a peer in one step.")
      .def_readonly("peer", &Transfer::peer)
      .def_readonly("source_chunk", &Transfer::source_chunk)
      .def_readonly("target_chunk", &Transfer::target_chunk)
      .def_readonly("num_chunks", &Transfer::num_chunks)
      .def_readonly("reduces", &Transfer::reduces);
  py::class_<Schedule>(module, "Schedule", "A collective algorithm as a generator of transfers.")
      .def(py::init(&collectives::make_schedule), py::arg("collective"), py::arg("algorithm"), py::arg("num_ranks"),
           py::arg("group_size") = 1, "Throws ConfigError for an unknown pair.")
      .def_property_readonly("num_ranks", [](const Schedule& s) { return s.shape().num_ranks; })
      .def_property_readonly("num_steps", [](const Schedule& s) { return s.shape().num_steps; })
      .def_property_readonly("num_chunks", [](const Schedule& s) { return s.shape().num_chunks; })
      .def_property_readonly("is_in_place", [](const Schedule& s) { return s.shape().is_in_place; })
      .def_property_readonly("total_chunks_sent", &Schedule::total_chunks_sent,
                             "Closed form of the chunks all ranks send.")
      .def("num_receives", &Schedule::num_receives, py::arg("rank"), py::arg("step"))
      .def(
          "sends",
          [](const Schedule& schedule, int32_t rank, int32_t step) {
            std::vector<Transfer> transfers;
            schedule.sends(rank, step, transfers);
            return transfers;
          },
          py::arg("rank"), py::arg("step"), "What `rank` sends in `step`.");
}

}  // namespace rostam::bindings
