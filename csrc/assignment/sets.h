// Sets of commodities that meet: at the first links that they choose among, and at the last. On a tree of two levels
// these are the uplinks and downlinks of each ToR.
// Example: Meetings(problem).first(3) == Meetings(problem).first(4) where both leave one ToR.
#pragma once

#include <cstdint>
#include <vector>

#include "assignment/problem.h"

namespace rostam::assignment {

class Meetings {
 public:
  static constexpr int32_t kNone = -1;  // of a commodity without a choice
  explicit Meetings(const PathProblem& problem);

  int32_t size() const { return size_; }
  // The set, 0 to size() - 1, of a commodity's first links, and of its last.
  int32_t first(int32_t commodity) const { return first_[static_cast<size_t>(commodity)]; }
  int32_t last(int32_t commodity) const { return last_[static_cast<size_t>(commodity)]; }
  // The least that the busiest link at a commodity's ends carries, whatever is assigned: the commodities that meet
  // there over the links that they choose among, rounded up.
  double least_load(int32_t commodity) const;
  // Their commodities, ascending.
  const std::vector<int32_t>& members(int32_t set) const { return members_[static_cast<size_t>(set)]; }

 private:
  int32_t size_ = 0;
  std::vector<int32_t> first_, last_;
  std::vector<std::vector<int32_t>> members_;
  std::vector<double> least_loads_;  // of each set
};

}  // namespace rostam::assignment
