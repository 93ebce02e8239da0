// greedy_components: greedy in each connected part of the commodities, joined where they may share a link; parts can be
// assigned side by side, and give what greedy gives. Source: Cohen et al., Routing for Large ML Models, the parallel
// version of algorithm 1, which joins commodities with a ToR in common.
#include <map>
#include <numeric>

#include "assignment/registry.h"
#include "assignment/sets.h"

namespace rostam::assignment {

namespace {

class Parts {
 public:
  explicit Parts(int32_t size) : parent_(static_cast<size_t>(size)) { std::iota(parent_.begin(), parent_.end(), 0); }
  int32_t find(int32_t one) {
    while (parent_[static_cast<size_t>(one)] != one) {
      int32_t& parent = parent_[static_cast<size_t>(one)];
      parent = parent_[static_cast<size_t>(parent)];
      one = parent;
    }
    return one;
  }
  void join(int32_t a, int32_t b) { parent_[static_cast<size_t>(find(a))] = find(b); }

 private:
  std::vector<int32_t> parent_;
};

class GreedyComponents : public Assigner {
 public:
  Assignment assign(const PathProblem& problem) override {
    std::map<int32_t, int32_t> user_of;  // of each link
    Parts parts(problem.size());
    for (int32_t number = 0; number < problem.size(); ++number) {
      for (int32_t path = 0; path < problem.num_paths(number); ++path) {
        for (const int32_t link : problem.loaded_links(number, path)) {
          parts.join(number, user_of.emplace(link, number).first->second);
        }
      }
    }
    std::map<int32_t, std::vector<int32_t>> members;
    for (int32_t number = 0; number < problem.size(); ++number) members[parts.find(number)].push_back(number);
    Assignment chosen(static_cast<size_t>(problem.size()), 0);
    LinkCounts counts(problem);  // parts have no link in common
    counts.add_settled();
    for (const auto& [part, numbers] : members) {
      for (const int32_t number : numbers) {
        chosen[static_cast<size_t>(number)] = counts.least_busy_path(number);
        if (problem.num_paths(number) > 1) counts.add(number, chosen[static_cast<size_t>(number)]);
      }
    }
    return chosen;
  }
};

}  // namespace

std::unique_ptr<Assigner> make_greedy_components_assigner(const AssignerOptions&) {
  return std::make_unique<GreedyComponents>();
}

}  // namespace rostam::assignment
