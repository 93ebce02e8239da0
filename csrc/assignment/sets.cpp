#include "assignment/sets.h"

#include <algorithm>
#include <map>

namespace rostam::assignment {

namespace {

// The lowest link at one end of a commodity's paths: all that leave, or enter, there have it in common.
int32_t lowest_end(const PathProblem& problem, int32_t commodity, bool is_first) {
  int32_t lowest = Meetings::kNone;
  for (int32_t path = 0; path < problem.num_paths(commodity); ++path) {
    const std::vector<int32_t>& links = problem.chosen_links(commodity, path);
    if (links.empty()) continue;
    const int32_t link = is_first ? links.front() : links.back();
    if (lowest == Meetings::kNone || link < lowest) lowest = link;
  }
  return lowest;
}

}  // namespace

Meetings::Meetings(const PathProblem& problem) {
  std::map<int32_t, int32_t> set_of;  // by lowest link
  for (int32_t number = 0; number < problem.size(); ++number) {
    for (const bool is_first : {true, false}) {
      const int32_t link = lowest_end(problem, number, is_first);
      const int32_t set = link == kNone ? kNone : set_of.emplace(link, set_of.size()).first->second;
      (is_first ? first_ : last_).push_back(set);
    }
  }
  size_ = static_cast<int32_t>(set_of.size());
  members_.resize(set_of.size());
  for (int32_t number = 0; number < problem.size(); ++number) {
    if (first(number) != kNone) members_[static_cast<size_t>(first(number))].push_back(number);
    if (last(number) != kNone && last(number) != first(number)) {
      members_[static_cast<size_t>(last(number))].push_back(number);
    }
  }
}

}  // namespace rostam::assignment
