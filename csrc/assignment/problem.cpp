#include "assignment/problem.h"

#include <algorithm>
#include <utility>

#include "sim/errors.h"

namespace rostam::assignment {

namespace {

std::vector<std::vector<int32_t>> links_of_choice(const Commodity& commodity) {
  std::vector<int32_t> all;
  for (const routing::Path* path : commodity.paths) all.insert(all.end(), path->links.begin(), path->links.end());
  std::sort(all.begin(), all.end());
  const auto num_paths = [&all](int32_t link) {
    const auto [first, last] = std::equal_range(all.begin(), all.end(), link);
    return static_cast<size_t>(last - first);
  };
  std::vector<std::vector<int32_t>> found;
  found.reserve(commodity.paths.size());
  for (const routing::Path* path : commodity.paths) {
    std::vector<int32_t>& links = found.emplace_back();
    for (const int32_t link : path->links) {
      if (num_paths(link) < commodity.paths.size()) links.push_back(link);
    }
  }
  return found;
}

}  // namespace

PathProblem::PathProblem(std::vector<Commodity> commodities, const std::vector<double>& capacities)
    : commodities_(std::move(commodities)), capacities_(capacities) {
  chosen_links_.reserve(commodities_.size());
  for (const Commodity& one : commodities_) {
    ROSTAM_CHECK(!one.paths.empty(), "no path from accelerator " << one.src << " to " << one.dst);
    chosen_links_.push_back(links_of_choice(one));
  }
}

int32_t PathProblem::num_paths(int32_t commodity) const {
  return static_cast<int32_t>(commodities_[static_cast<size_t>(commodity)].paths.size());
}

const std::vector<int32_t>& PathProblem::chosen_links(int32_t commodity, int32_t path) const {
  return chosen_links_[static_cast<size_t>(commodity)][static_cast<size_t>(path)];
}

LinkCounts::LinkCounts(const PathProblem& problem) : problem_(problem), counts_(problem.capacities().size(), 0) {
  const std::vector<double>& capacities = problem.capacities();
  const double fastest = capacities.empty() ? 0 : *std::max_element(capacities.begin(), capacities.end());
  for (const double capacity : capacities) scale_.push_back(capacity > 0 ? fastest / capacity : 0);
}

void LinkCounts::add(int32_t commodity, int32_t path, int32_t count) {
  for (const int32_t link : problem_.chosen_links(commodity, path)) counts_[static_cast<size_t>(link)] += count;
}

double LinkCounts::busiest(int32_t commodity, int32_t path) const {
  double most = 0;
  for (const int32_t link : problem_.chosen_links(commodity, path)) most = std::max(most, on(link));
  return most;
}

bool LinkCounts::is_alone(int32_t commodity, int32_t path) const {
  const std::vector<int32_t>& links = problem_.chosen_links(commodity, path);
  return std::all_of(links.begin(), links.end(),
                     [this](int32_t link) { return counts_[static_cast<size_t>(link)] < 2; });
}

int32_t LinkCounts::least_busy_path(int32_t commodity) const {
  int32_t best = 0;
  double least = busiest(commodity, 0);
  for (int32_t path = 1; path < problem_.num_paths(commodity) && least > 0; ++path) {
    const double busy = busiest(commodity, path);
    if (busy >= least) continue;
    least = busy;
    best = path;
  }
  return best;
}

}  // namespace rostam::assignment
