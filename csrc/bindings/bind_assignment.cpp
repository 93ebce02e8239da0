// Binds the assignment floor: which of its paths each pair of accelerators takes, all at once, for studies and tests.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <map>
#include <utility>

#include "assignment/registry.h"
#include "assignment/shares.h"
#include "bindings/bindings.h"
#include "bindings/work.h"
#include "control/control_plane.h"
#include "routing/route_table.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace rostam::bindings {

namespace {

using Pair = std::pair<int32_t, int32_t>;
using PathsOfPairs = std::map<Pair, std::vector<routing::Path>>;

std::vector<routing::Path> paths_of(const routing::RouteTable& routes, int32_t src, int32_t dst) {
  if (routes.planes().size() > 1) {
    ROSTAM_THROW(ConfigError, "single paths are for planes that are alike; this fabric has " << routes.planes().size()
                                                                                             << " that differ");
  }
  return routing::paths_of(*routes.planes().front().policy, src, dst, control::ControlPlane::kMostPaths);
}

py::list candidate_paths(const routing::RouteTable& routes, int32_t src, int32_t dst) {
  std::vector<routing::Path> found;
  {
    const Work work;
    found = paths_of(routes, src, dst);
  }
  py::list all;
  for (const routing::Path& path : found) all.append(py::make_tuple(path.links, path.latency.ps()));
  return all;
}

assignment::PathProblem problem_of(const routing::RouteTable& routes, const std::vector<int32_t>& src,
                                   const std::vector<int32_t>& dst, const std::vector<int32_t>& job,
                                   PathsOfPairs& paths) {
  std::vector<assignment::Commodity> commodities;
  for (size_t i = 0; i < src.size(); ++i) {
    const Pair pair = {src[i], dst.at(i)};
    if (paths.count(pair) == 0) paths[pair] = paths_of(routes, pair.first, pair.second);
    assignment::Commodity one{job.at(i), pair.first, pair.second, {}, {}};
    for (const routing::Path& path : paths[pair]) {
      one.places.push_back(static_cast<int32_t>(one.places.size()));
      one.paths.push_back(&path);
    }
    commodities.push_back(std::move(one));
  }
  return {std::move(commodities), routes.links().capacities};
}

// A choice among paths that is to be made again and again, the paths found once.
class PathChoice {
 public:
  PathChoice(std::shared_ptr<routing::RouteTable> routes, const std::vector<int32_t>& src,
             const std::vector<int32_t>& dst, const std::vector<int32_t>& job)
      : routes_(std::move(routes)), problem_(problem_of(*routes_, src, dst, job, paths_)) {}

  assignment::Assignment assign(const std::string& assigner, uint64_t seed,
                                const std::vector<std::vector<int64_t>>& planned) const {
    const Work work;
    assignment::AssignerOptions options{seed, {}};
    for (const std::vector<int64_t>& one : planned) {
      options.planned.push_back({static_cast<uint64_t>(one.at(0)), static_cast<int32_t>(one.at(1)),
                                 static_cast<int32_t>(one.at(2)), static_cast<int32_t>(one.at(3))});
    }
    return assignment::make_assigner(assigner, options)->assign(problem_);
  }

  py::dict shares(const assignment::Assignment& chosen) const {
    check(chosen);
    assignment::Shares found;
    {
      const Work work;
      found = assignment::find_shares(problem_, chosen);
    }
    const double num_planes = routes_->num_alike();
    for (double& rate : found.rates) rate *= num_planes;
    for (auto& [job, share] : found.of_jobs) share *= num_planes;
    return py::dict("rates"_a = found.rates, "of_jobs"_a = found.of_jobs, "largest_load"_a = found.largest_load);
  }

  // Of every path of each commodity, the links that it chooses among; or those that anybody does.
  std::vector<std::vector<std::vector<int32_t>>> links(bool of_anybody) const {
    std::vector<std::vector<std::vector<int32_t>>> all;
    for (int32_t number = 0; number < problem_.size(); ++number) {
      all.emplace_back();
      for (int32_t path = 0; path < problem_.num_paths(number); ++path) {
        all.back().push_back(of_anybody ? problem_.loaded_links(number, path) : problem_.chosen_links(number, path));
      }
    }
    return all;
  }

 private:
  void check(const assignment::Assignment& chosen) const {
    bool is_good = static_cast<int32_t>(chosen.size()) == problem_.size();
    for (int32_t number = 0; is_good && number < problem_.size(); ++number) {
      const int32_t path = chosen[static_cast<size_t>(number)];
      is_good = path >= 0 && path < problem_.num_paths(number);
    }
    if (!is_good) throw ConfigError("an assignment has one path for each pair, by its place among those it may take");
  }

  std::shared_ptr<routing::RouteTable> routes_;
  PathsOfPairs paths_;
  assignment::PathProblem problem_;
};

}  // namespace

void bind_assignment(py::module_& module) {
  module.def("assigner_names", &assignment::assigner_names, "Names of the registered assigners.");
  module.def("assigner_summary", &assignment::assigner_summary, "name"_a, "What an assigner does, in one line.");
  module.def("candidate_paths", &candidate_paths, "routes"_a, "src"_a, "dst"_a,
             "Return (engine links, latency in ps) of each single path of a pair, in the order of the vertices that "
             "they go through.");
  py::class_<PathChoice>(module, "PathChoice", "Pairs of accelerators that each take one of their single paths.")
      .def(py::init<std::shared_ptr<routing::RouteTable>, const std::vector<int32_t>&, const std::vector<int32_t>&,
                    const std::vector<int32_t>&>(),
           "routes"_a, "src"_a, "dst"_a, "job"_a)
      .def("assign", &PathChoice::assign, "assigner"_a, "seed"_a = 0, "planned"_a = std::vector<std::vector<int64_t>>{},
           "Return the path of each pair, by its place among candidate_paths.")
      .def("shares", &PathChoice::shares, "chosen"_a,
           "Return the max-min fair rate of each pair, the least of each job [bytes/s], and the most paths on a link.")
      .def("links", &PathChoice::links, "of_anybody"_a = false,
           "Engine links of every path of each pair that not all of its paths take; or that not all of somebody's do.");
}

}  // namespace rostam::bindings
