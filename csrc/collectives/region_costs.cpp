#include "collectives/region_costs.h"

#include <algorithm>

namespace rostam::collectives {

RegionCosts region_costs(const routing::RouteTable& routes, const Schedule& schedule,
                         const std::vector<std::vector<int32_t>>& groups) {
  const std::vector<Region> regions = schedule.regions();
  const Shape& shape = schedule.shape();
  RegionCosts costs;
  costs.latency_ps.assign(static_cast<size_t>(shape.num_steps), 0);
  costs.loads.assign(routes.links().capacities.size(), 0.0);
  std::vector<RegionTransfer> transfers;
  std::vector<int32_t> members;
  for (const std::vector<int32_t>& group : groups) {
    for (int32_t rank = 0; rank < shape.num_ranks; ++rank) {
      std::vector<routing::Route> known(regions.size());
      for (int32_t step = 0; step < shape.num_steps; ++step) {
        transfers.clear();
        schedule.region_transfers(rank, step, transfers);
        for (const RegionTransfer& transfer : transfers) {
          const Region& region = regions[static_cast<size_t>(transfer.region)];
          routing::Route& route = known[static_cast<size_t>(transfer.region)];
          if (route.ends.empty()) {
            members.clear();
            for (int32_t i = 0; i < region.size; ++i) {
              members.push_back(group[static_cast<size_t>(region.member(rank, i))]);
            }
            route = routing::region_route(routes, region.op, members, static_cast<size_t>(region.place(rank)));
          }
          int64_t& latency = costs.latency_ps[static_cast<size_t>(step)];
          latency = std::max(latency, route.latency.ps());
          costs.most_chunks = std::max(costs.most_chunks, transfer.num_chunks);
          for (const routing::LinkShare& part : route.links) {
            costs.loads[static_cast<size_t>(part.link)] += part.share * transfer.num_chunks;
          }
        }
      }
    }
  }
  return costs;
}

}  // namespace rostam::collectives
