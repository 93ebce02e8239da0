// edge_colouring: commodities are edges from their first switch (ToR) to their last one; colours of the bipartite
// multigraph, as many as its largest degree, are dealt to the paths in turn, so that no link carries more than
// ceil(degree / paths): the best there is. For trees of two levels in which whole spines have failed, or none.
// Source: Cohen et al., Routing for Large ML Models, comparables; Koenig (1916).
#include "circuits/edge_colouring.h"

#include <algorithm>
#include <map>
#include <utility>

#include "assignment/registry.h"
#include "assignment/sets.h"
#include "sim/errors.h"

namespace rostam::assignment {

namespace {

// Throws: ConfigError unless the k-th paths of all that meet at one end take the same link there.
void check_spines(const PathProblem& problem, const Meetings& meetings) {
  std::map<std::pair<int32_t, int32_t>, int32_t> link_of;  // by set, and place of the path
  for (int32_t number = 0; number < problem.size(); ++number) {
    const bool has_choice = meetings.first(number) != Meetings::kNone;
    bool is_alike = has_choice || problem.loaded_links(number, 0).empty();
    for (int32_t path = 0; path < problem.num_paths(number) && has_choice && is_alike; ++path) {
      const std::vector<int32_t>& links = problem.chosen_links(number, path);
      const std::pair<int32_t, int32_t> ends[] = {{meetings.first(number), path}, {meetings.last(number), path}};
      is_alike = links.size() == 2 && problem.loaded_links(number, path).size() == 2 &&
                 link_of.emplace(ends[0], links[0]).first->second == links[0] &&
                 link_of.emplace(ends[1], links[1]).first->second == links[1];
    }
    if (is_alike) continue;
    ROSTAM_THROW(ConfigError,
                 "edge_colouring is for trees of two levels in which whole spines have failed, or none; "
                 "the paths from accelerator "
                     << problem.commodity(number).src << " to " << problem.commodity(number).dst
                     << " are not those of such a tree; take greedy_by_sets");
  }
}

class EdgeColouring : public Assigner {
 public:
  Assignment assign(const PathProblem& problem) override {
    const Meetings meetings(problem);
    check_spines(problem, meetings);
    std::vector<std::pair<int32_t, int32_t>> edges;
    std::vector<int32_t> numbers;
    std::vector<int32_t> degree(2 * static_cast<size_t>(meetings.size()), 0);
    for (int32_t number = 0; number < problem.size(); ++number) {
      if (meetings.first(number) == Meetings::kNone) continue;
      edges.emplace_back(meetings.first(number), meetings.size() + meetings.last(number));
      numbers.push_back(number);
      ++degree[static_cast<size_t>(edges.back().first)];
      ++degree[static_cast<size_t>(edges.back().second)];
    }
    Assignment chosen(static_cast<size_t>(problem.size()), 0);
    if (edges.empty()) return chosen;
    const int32_t num_colours = *std::max_element(degree.begin(), degree.end());
    const std::vector<int32_t> colours = circuits::colour_edges(2 * meetings.size(), edges, num_colours);
    for (size_t i = 0; i < numbers.size(); ++i) {
      chosen[static_cast<size_t>(numbers[i])] = colours[i] % problem.num_paths(numbers[i]);
    }
    return chosen;
  }
};

}  // namespace

std::unique_ptr<Assigner> make_edge_colouring_assigner(const AssignerOptions&) {
  return std::make_unique<EdgeColouring>();
}

}  // namespace rostam::assignment
