// Shares: what an assignment of paths gives commodities and jobs where congestion control shares links max-min fairly.
// Source: the objective of Cohen et al., Routing for Large ML Models: the least share of each job, jobs compared from
// the worst up.
// Example: find_shares(problem, chosen).of_jobs.begin()->second
#pragma once

#include <map>
#include <vector>

#include "assignment/problem.h"

namespace rostam::assignment {

struct Shares {
  std::vector<double> rates;          // of each commodity [bytes/s]
  std::map<int32_t, double> of_jobs;  // the least of each job's [bytes/s]
  int32_t num_least = 0;              // commodities that have no more than that
  double crowding = 0;                // sum of the squares of assigned paths on links that there is a choice about
  double largest_load = 0;            // assigned paths on the busiest link that there is a choice about

  // The shares of jobs, ascending: the larger in lexicographic order, the better.
  std::vector<double> objective() const;
};

Shares find_shares(const PathProblem& problem, const Assignment& chosen);

}  // namespace rostam::assignment
