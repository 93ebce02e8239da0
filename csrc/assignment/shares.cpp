#include "assignment/shares.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "flow/max_min.h"

namespace rostam::assignment {

namespace {

constexpr double kAlike = 1e-9;  // relative difference of shares that are the same

}  // namespace

std::vector<double> Shares::objective() const {
  std::vector<double> sorted;
  for (const auto& [job, share] : of_jobs) sorted.push_back(share);
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

Shares find_shares(const PathProblem& problem, const Assignment& chosen) {
  flow::MaxMinProblem rates;
  std::unordered_map<int32_t, uint32_t> index;  // of each link that is taken
  LinkCounts counts(problem);
  rates.clear();
  for (int32_t number = 0; number < problem.size(); ++number) {
    const int32_t path = chosen[static_cast<size_t>(number)];
    counts.add(number, path);
    for (const int32_t link : problem.commodity(number).paths[static_cast<size_t>(path)]->links) {
      if (index.count(link) > 0) continue;
      index[link] = rates.add_link(problem.capacities()[static_cast<size_t>(link)]);
    }
  }
  for (int32_t number = 0; number < problem.size(); ++number) {
    rates.add_flow(std::numeric_limits<double>::infinity());
    const int32_t path = chosen[static_cast<size_t>(number)];
    for (const int32_t link : problem.commodity(number).paths[static_cast<size_t>(path)]->links) {
      rates.add_hop(index[link], 1);
    }
  }
  rates.solve();
  Shares shares;
  shares.rates = rates.rate;
  for (int32_t number = 0; number < problem.size(); ++number) {
    const double rate = shares.rates[static_cast<size_t>(number)];
    const auto [found, is_new] = shares.of_jobs.emplace(problem.commodity(number).job, rate);
    if (!is_new) found->second = std::min(found->second, rate);
    shares.largest_load = std::max(shares.largest_load, counts.busiest(number, chosen[static_cast<size_t>(number)]));
  }
  for (int32_t number = 0; number < problem.size(); ++number) {
    const double least = shares.of_jobs.at(problem.commodity(number).job);
    for (const int32_t link : problem.loaded_links(number, chosen[static_cast<size_t>(number)])) {
      shares.crowding += counts.on(link);  // once for each path on it
    }
    shares.num_least += shares.rates[static_cast<size_t>(number)] <= least * (1 + kAlike);
  }
  return shares;
}

}  // namespace rostam::assignment
