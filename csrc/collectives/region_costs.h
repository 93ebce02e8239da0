// What the data of a schedule's regions put on links: for predictions of collectives that switches add up or copy.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/schedule.h"
#include "routing/route_table.h"

namespace rostam::collectives {

// latency_ps: of each step with transfers through regions, the longest route's. loads: chunks on every engine link in
// all steps, of all groups together. most_chunks: of the largest transfer.
struct RegionCosts {
  std::vector<int64_t> latency_ps;
  std::vector<double> loads;
  int32_t most_chunks = 0;
};

// groups: accelerators in rank order. REQUIRES: groups of the schedule's number of ranks.
// Throws: as routing::region_route. Cost: one route for each rank, group and region.
RegionCosts region_costs(const routing::RouteTable& routes, const Schedule& schedule,
                         const std::vector<std::vector<int32_t>>& groups);

}  // namespace rostam::collectives
