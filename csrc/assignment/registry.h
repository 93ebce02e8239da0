// Registry of assigners by name. An assigner is one file that defines make_<name>_assigner and a line in builtin.inc.
// Example: make_assigner("greedy", {})->assign(problem).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "assignment/problem.h"

namespace rostam::assignment {

// What was computed ahead for one set of jobs that send: the path of a pair, by its place among all of the pair's.
struct PlannedPath {
  uint64_t jobs = 0;  // one bit for each job
  int32_t src = 0, dst = 0;
  int32_t path = 0;
};

struct AssignerOptions {
  uint64_t seed = 0;                 // of those that draw
  std::vector<PlannedPath> planned;  // of those that follow a table
};

class Assigner {
 public:
  virtual ~Assigner() = default;
  // The same for the same problem.
  virtual Assignment assign(const PathProblem& problem) = 0;
  // Commodities so far that it had no plan for, of one that follows plans.
  virtual int64_t num_unplanned() const { return 0; }
};

#define ROSTAM_ASSIGNER(name, summary) std::unique_ptr<Assigner> make_##name##_assigner(const AssignerOptions&);
#include "assignment/builtin.inc"
#undef ROSTAM_ASSIGNER

// Throws: ConfigError listing the registered names if `name` is not one of them.
std::unique_ptr<Assigner> make_assigner(const std::string& name, const AssignerOptions& options);

// One line for lists. Throws: as make_assigner.
std::string assigner_summary(const std::string& name);

std::vector<std::string> assigner_names();

}  // namespace rostam::assignment
