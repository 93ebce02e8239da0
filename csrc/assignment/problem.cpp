#include "assignment/problem.h"

#include <algorithm>
#include <iterator>
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
  std::vector<uint8_t> is_chosen(capacities.size(), 0);  // by anybody
  chosen_links_.reserve(commodities_.size());
  for (const Commodity& one : commodities_) {
    ROSTAM_CHECK(!one.paths.empty(), "no path from accelerator " << one.src << " to " << one.dst);
    chosen_links_.push_back(links_of_choice(one));
    for (const std::vector<int32_t>& links : chosen_links_.back()) {
      for (const int32_t link : links) is_chosen[static_cast<size_t>(link)] = 1;
    }
  }
  loaded_links_.reserve(commodities_.size());
  for (const Commodity& one : commodities_) {
    std::vector<std::vector<int32_t>>& all = loaded_links_.emplace_back();
    for (const routing::Path* path : one.paths) {
      std::vector<int32_t>& links = all.emplace_back();
      std::copy_if(path->links.begin(), path->links.end(), std::back_inserter(links),
                   [&](int32_t link) { return is_chosen[static_cast<size_t>(link)] != 0; });
    }
  }
}

int32_t PathProblem::num_paths(int32_t commodity) const {
  return static_cast<int32_t>(commodities_[static_cast<size_t>(commodity)].paths.size());
}

const std::vector<int32_t>& PathProblem::chosen_links(int32_t commodity, int32_t path) const {
  return chosen_links_[static_cast<size_t>(commodity)][static_cast<size_t>(path)];
}

const std::vector<int32_t>& PathProblem::loaded_links(int32_t commodity, int32_t path) const {
  return loaded_links_[static_cast<size_t>(commodity)][static_cast<size_t>(path)];
}

LinkCounts::LinkCounts(const PathProblem& problem) : problem_(problem), counts_(problem.capacities().size(), 0) {
  const std::vector<double>& capacities = problem.capacities();
  const double fastest = capacities.empty() ? 0 : *std::max_element(capacities.begin(), capacities.end());
  for (const double capacity : capacities) scale_.push_back(capacity > 0 ? fastest / capacity : 0);
}

void LinkCounts::add(int32_t commodity, int32_t path, int32_t count) {
  for (const int32_t link : problem_.loaded_links(commodity, path)) counts_[static_cast<size_t>(link)] += count;
}

void LinkCounts::add_settled() {
  for (int32_t number = 0; number < problem_.size(); ++number) {
    if (problem_.num_paths(number) == 1) add(number, 0);
  }
}

double LinkCounts::busiest(int32_t commodity, int32_t path) const {
  return most_on(problem_.loaded_links(commodity, path));
}

double LinkCounts::most_on(const std::vector<int32_t>& links) const {
  double most = 0;
  for (const int32_t link : links) most = std::max(most, on(link));
  return most;
}

bool LinkCounts::is_alone(int32_t commodity, int32_t path) const {
  const std::vector<int32_t>& links = problem_.loaded_links(commodity, path);
  return std::all_of(links.begin(), links.end(),
                     [this](int32_t link) { return counts_[static_cast<size_t>(link)] < 2; });
}

int32_t LinkCounts::least_busy_path(int32_t commodity) const {
  int32_t best = 0;
  double least = most_on(problem_.chosen_links(commodity, 0));
  for (int32_t path = 1; path < problem_.num_paths(commodity) && least > 0; ++path) {
    const double busy = most_on(problem_.chosen_links(commodity, path));
    if (busy >= least) continue;
    least = busy;
    best = path;
  }
  return best;
}

}  // namespace rostam::assignment
