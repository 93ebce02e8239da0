// planned: paths that were computed ahead, one table for each set of jobs that send at a time: what an optimum takes
// too long for in a run. What a table lacks, or had over links that have failed since, is assigned as greedy does.
// Source: Cohen et al., Routing for Large ML Models: assignments for predicted traffic may be precomputed.
#include <algorithm>
#include <map>
#include <tuple>

#include "assignment/registry.h"
#include "sim/errors.h"

namespace rostam::assignment {

namespace {

constexpr int32_t kMostJobs = 63;  // a bit each, and none for the sign

class Planned : public Assigner {
 public:
  explicit Planned(const std::vector<PlannedPath>& planned) {
    for (const PlannedPath& one : planned) place_of_[{one.jobs, one.src, one.dst}] = one.path;
  }

  Assignment assign(const PathProblem& problem) override {
    uint64_t jobs = 0;
    for (int32_t number = 0; number < problem.size(); ++number) {
      const int32_t job = std::max(0, problem.commodity(number).job);  // flows by themselves are one
      if (job >= kMostJobs) {
        ROSTAM_THROW(ConfigError, "planned paths are for jobs 0 to " << kMostJobs - 1 << ", not job " << job);
      }
      jobs |= uint64_t{1} << job;
    }
    LinkCounts counts(problem);
    Assignment chosen;
    for (int32_t number = 0; number < problem.size(); ++number) {
      const int32_t planned = problem.num_paths(number) == 1 ? 0 : find(problem.commodity(number), jobs);
      chosen.push_back(planned);
      if (planned != kOpen) counts.add(number, planned);
    }
    for (int32_t number = 0; number < problem.size(); ++number) {
      int32_t& path = chosen[static_cast<size_t>(number)];
      if (path != kOpen) continue;
      ++num_unplanned_;
      path = counts.least_busy_path(number);
      counts.add(number, path);
    }
    return chosen;
  }

  int64_t num_unplanned() const override { return num_unplanned_; }

 private:
  static constexpr int32_t kOpen = -1;

  int32_t find(const Commodity& commodity, uint64_t jobs) const {
    const auto found = place_of_.find({jobs, commodity.src, commodity.dst});
    if (found == place_of_.end()) return kOpen;
    const auto place = std::find(commodity.places.begin(), commodity.places.end(), found->second);
    return place == commodity.places.end() ? kOpen : static_cast<int32_t>(place - commodity.places.begin());
  }

  std::map<std::tuple<uint64_t, int32_t, int32_t>, int32_t> place_of_;
  int64_t num_unplanned_ = 0;
};

}  // namespace

std::unique_ptr<Assigner> make_planned_assigner(const AssignerOptions& options) {
  return std::make_unique<Planned>(options.planned);
}

}  // namespace rostam::assignment
