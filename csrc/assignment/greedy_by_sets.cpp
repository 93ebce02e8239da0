// greedy_by_sets: greedy over sets of commodities, those that leave or enter each first switch (ToR), the largest set
// first. Source: what the authors' code of Cohen et al., Routing for Large ML Models, does; its text has any order.
#include <algorithm>
#include <numeric>

#include "assignment/registry.h"
#include "assignment/sets.h"

namespace rostam::assignment {

namespace {

class GreedyBySets : public Assigner {
 public:
  Assignment assign(const PathProblem& problem) override {
    const Meetings meetings(problem);
    std::vector<int32_t> order(static_cast<size_t>(meetings.size()));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return meetings.members(a).size() > meetings.members(b).size(); });
    LinkCounts counts(problem);
    counts.add_settled();
    Assignment chosen(static_cast<size_t>(problem.size()), kOpen);
    for (const int32_t set : order) {
      for (const int32_t number : meetings.members(set)) {
        int32_t& path = chosen[static_cast<size_t>(number)];
        if (path != kOpen) continue;
        path = counts.least_busy_path(number);
        counts.add(number, path);
      }
    }
    std::replace(chosen.begin(), chosen.end(), kOpen, 0);  // without a choice
    return chosen;
  }

 private:
  static constexpr int32_t kOpen = -1;
};

}  // namespace

std::unique_ptr<Assigner> make_greedy_by_sets_assigner(const AssignerOptions&) {
  return std::make_unique<GreedyBySets>();
}

}  // namespace rostam::assignment
