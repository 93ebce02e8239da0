// PathProblem: commodities that each take one of several paths, and what a choice puts on links.
// A commodity is what one accelerator sends another as long as a job's iteration lasts, an edge of an all-reduce's ring
// say. Source: Cohen et al., Routing for Large ML Models, section 3.
// Example: LinkCounts counts(problem); counts.add(0, 3); counts.busiest(1, 3) has what that puts on path 3 of another.
#pragma once

#include <cstdint>
#include <vector>

#include "routing/paths.h"

namespace rostam::assignment {

struct Commodity {
  int32_t job = 0;
  int32_t src = 0, dst = 0;                 // accelerators
  std::vector<const routing::Path*> paths;  // that it may take, in their order; one at least
  std::vector<int32_t> places;              // of each among all paths of the pair, those of failed links included
};

// The path of each commodity, by its place among the commodity's own.
using Assignment = std::vector<int32_t>;

class PathProblem {
 public:
  // capacities: of every engine link [bytes/s]; those that paths take are > 0.
  PathProblem(std::vector<Commodity> commodities, const std::vector<double>& capacities);

  int32_t size() const { return static_cast<int32_t>(commodities_.size()); }
  const Commodity& commodity(int32_t number) const { return commodities_[static_cast<size_t>(number)]; }
  const std::vector<double>& capacities() const { return capacities_; }
  int32_t num_paths(int32_t commodity) const;
  // Links of a path that not all paths of its commodity take: its own choice.
  const std::vector<int32_t>& chosen_links(int32_t commodity, int32_t path) const;
  // Links of a path that any commodity has a choice about: what it loads that others could avoid.
  const std::vector<int32_t>& loaded_links(int32_t commodity, int32_t path) const;

 private:
  using LinksOfPaths = std::vector<std::vector<std::vector<int32_t>>>;  // by commodity and path

  std::vector<Commodity> commodities_;
  const std::vector<double>& capacities_;
  LinksOfPaths chosen_links_, loaded_links_;
};

// Assigned paths on each link, in relation to its bandwidth: 1 is one path on the fastest link.
class LinkCounts {
 public:
  explicit LinkCounts(const PathProblem& problem);

  void add(int32_t commodity, int32_t path, int32_t count = 1);
  // Adds all commodities with a single path, which is theirs whatever the others take.
  void add_settled();
  // Of the busiest link of a path that any commodity has a choice about; 0 if there is none.
  double busiest(int32_t commodity, int32_t path) const;
  // Whether a commodity on a path has its links to itself.
  bool is_alone(int32_t commodity, int32_t path) const;
  // The path whose busiest link, of those that the commodity chooses among, carries the least; of several the first.
  int32_t least_busy_path(int32_t commodity) const;
  double on(int32_t link) const { return counts_[static_cast<size_t>(link)] * scale_[static_cast<size_t>(link)]; }

 private:
  double most_on(const std::vector<int32_t>& links) const;

  const PathProblem& problem_;
  std::vector<int32_t> counts_;
  std::vector<double> scale_;
};

}  // namespace rostam::assignment
