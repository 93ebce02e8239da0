// Binds the analytic floor: static link loads, saturation, closed forms of collectives.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "analytic/closed_forms.h"
#include "analytic/link_loads.h"
#include "analytic/route_costs.h"
#include "bindings/bindings.h"
#include "bindings/work.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace rostam::bindings {

namespace {

using RoutesPointer = std::shared_ptr<routing::RouteTable>;

py::array_t<double> as_array(const std::vector<double>& values) {
  return py::array_t<double>(static_cast<py::ssize_t>(values.size()), values.data());
}

py::array_t<double> link_loads(const RoutesPointer& routes, std::vector<int32_t> src, std::vector<int32_t> dst,
                               std::vector<double> num_bytes) {
  const analytic::Flows flows{std::move(src), std::move(dst), std::move(num_bytes)};
  std::vector<double> loads;
  {
    const Work work;
    loads = analytic::link_loads(*routes, flows);
  }
  return as_array(loads);
}

py::array_t<double> all_to_all_loads(const RoutesPointer& routes, const std::vector<int32_t>& members,
                                     double num_bytes) {
  std::vector<double> loads;
  {
    const Work work;
    loads = analytic::all_to_all_loads(*routes, members, num_bytes);
  }
  return as_array(loads);
}

py::tuple route_costs(const RoutesPointer& routes, std::vector<int32_t> src, std::vector<int32_t> dst,
                      std::vector<double> num_bytes) {
  const analytic::Flows flows{std::move(src), std::move(dst), std::move(num_bytes)};
  analytic::RouteCosts costs;
  {
    const Work work;
    costs = analytic::route_costs(*routes, flows);
  }
  const auto count = static_cast<py::ssize_t>(costs.latency_ps.size());
  return py::make_tuple(py::array_t<int64_t>(count, costs.latency_ps.data()), as_array(costs.seconds));
}

int64_t collective_time_ps(const std::string& collective, const std::string& algorithm, int64_t num_bytes,
                           int32_t num_ranks, double alpha_s, double bandwidth_bytes_per_s, std::vector<int32_t> grid,
                           int32_t num_pieces) {
  const analytic::CollectiveCase given{
      num_bytes, num_ranks, SimTime::from_seconds(alpha_s), bandwidth_bytes_per_s, std::move(grid), num_pieces};
  return analytic::collective_time(collective, algorithm, given).ps();
}

}  // namespace

void bind_analytic(py::module_& module) {
  module.def("link_loads", &link_loads, "routes"_a, "src"_a, "dst"_a, "num_bytes"_a,
             "Bytes that the flows put on every engine link of one plane of each class; num_bytes of the mean plane.");
  module.def("all_to_all_loads", &all_to_all_loads, "routes"_a, "members"_a, "num_bytes"_a,
             "Bytes on every engine link when each member spreads num_bytes over all others.");
  module.def("route_costs", &route_costs, "routes"_a, "src"_a, "dst"_a, "num_bytes"_a,
             "(latency [ps], seconds that the busiest link of the route needs) of every flow, all sent at once.");
  module.def("headroom", &analytic::headroom, "routes"_a, "loads"_a,
             "Largest factor by which loads (as rates) may grow until the first link is full.");
  module.def("collective_time_ps", &collective_time_ps, "collective"_a, "algorithm"_a, "num_bytes"_a, "num_ranks"_a,
             "alpha_s"_a, "bandwidth_bytes_per_s"_a, "grid"_a = std::vector<int32_t>(), "num_pieces"_a = 1,
             "Closed-form time of a collective [ps] (MODEL A5).");
  module.def("closed_form_names", &analytic::closed_form_names, "'collective/algorithm' of every closed form.");
}

}  // namespace rostam::bindings
