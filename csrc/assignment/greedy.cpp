// greedy: one commodity after another takes, of its paths in order, the one whose busiest link carries the fewest
// assigned ones. At most twice the best largest load on trees of two levels.
// Source: Cohen et al., Routing for Large ML Models, algorithm 1 and theorem 1.
#include "assignment/registry.h"

namespace rostam::assignment {

namespace {

class Greedy : public Assigner {
 public:
  Assignment assign(const PathProblem& problem) override {
    LinkCounts counts(problem);
    counts.add_settled();
    Assignment chosen;
    for (int32_t number = 0; number < problem.size(); ++number) {
      chosen.push_back(counts.least_busy_path(number));
      if (problem.num_paths(number) > 1) counts.add(number, chosen.back());
    }
    return chosen;
  }
};

}  // namespace

std::unique_ptr<Assigner> make_greedy_assigner(const AssignerOptions&) { return std::make_unique<Greedy>(); }

}  // namespace rostam::assignment
