#include "assignment/sets.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace rostam::assignment {

namespace {

// Joins the links at one end of each commodity's paths: commodities with a joined link meet there.
class Ends {
 public:
  Ends(const PathProblem& problem, bool is_first)
      : problem_(problem), is_first_(is_first), parent_(problem.capacities().size()) {
    std::iota(parent_.begin(), parent_.end(), 0);
    for (int32_t number = 0; number < problem.size(); ++number) {
      const int32_t first = link_of(number, 0);
      for (int32_t path = 0; path < problem.num_paths(number); ++path) join(first, link_of(number, path));
    }
  }

  // A link that stands for all of a commodity's; kNone without a choice.
  int32_t find(int32_t number) { return root(link_of(number, 0)); }

 private:
  int32_t link_of(int32_t number, int32_t path) const {
    const std::vector<int32_t>& links = problem_.chosen_links(number, path);
    return links.empty() ? Meetings::kNone : (is_first_ ? links.front() : links.back());
  }
  int32_t root(int32_t link) {
    if (link == Meetings::kNone) return link;
    while (parent_[static_cast<size_t>(link)] != link) {
      int32_t& parent = parent_[static_cast<size_t>(link)];
      link = parent = parent_[static_cast<size_t>(parent)];
    }
    return link;
  }
  void join(int32_t a, int32_t b) {
    if (a == b || a == Meetings::kNone || b == Meetings::kNone) return;
    const int32_t one = root(a), other = root(b);
    parent_[static_cast<size_t>(std::max(one, other))] = std::min(one, other);
  }

  const PathProblem& problem_;
  bool is_first_;
  std::vector<int32_t> parent_;
};

}  // namespace

Meetings::Meetings(const PathProblem& problem) {
  Ends firsts(problem, true), lasts(problem, false);
  // Numbered as they come: where one commodity leaves, where it enters, then those of the next.
  std::vector<int32_t> first_sets(problem.capacities().size(), kNone), last_sets(first_sets);
  const auto add = [this](int32_t number, int32_t link, std::vector<int32_t>& sets) {
    if (link == kNone) return kNone;
    int32_t& set = sets[static_cast<size_t>(link)];
    if (set == kNone) {
      set = size_++;
      members_.emplace_back();
    }
    members_[static_cast<size_t>(set)].push_back(number);
    return set;
  };
  for (int32_t number = 0; number < problem.size(); ++number) {
    first_.push_back(add(number, firsts.find(number), first_sets));
    last_.push_back(add(number, lasts.find(number), last_sets));
  }
  std::vector<std::set<int32_t>> links(members_.size());
  for (int32_t number = 0; number < problem.size(); ++number) {
    if (first(number) == kNone) continue;
    for (int32_t path = 0; path < problem.num_paths(number); ++path) {
      links[static_cast<size_t>(first(number))].insert(problem.chosen_links(number, path).front());
      links[static_cast<size_t>(last(number))].insert(problem.chosen_links(number, path).back());
    }
  }
  for (size_t set = 0; set < members_.size(); ++set) {
    const size_t count = links[set].size();
    least_loads_.push_back(static_cast<double>((members_[set].size() + count - 1) / count));
  }
}

double Meetings::least_load(int32_t commodity) const {
  if (first(commodity) == kNone) return 0;
  return std::max(least_loads_[static_cast<size_t>(first(commodity))],
                  least_loads_[static_cast<size_t>(last(commodity))]);
}

}  // namespace rostam::assignment
