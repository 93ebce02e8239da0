#include "routing/settled_loads.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "sim/errors.h"
#include "sim/interrupt.h"

namespace rostam::routing {

namespace {

constexpr double kPower = 48;       // of how full a link is: one at 0.9 of the fullest costs 1/140 of it
constexpr double kPresence = 0.01;  // of what the fullest link costs, on every link
constexpr int kMaxRounds = 80;
constexpr int kPatience = 8;  // rounds that may pass with less than kProgress
constexpr double kProgress = 0.002;
constexpr double kSettled = 1e-4;  // of the fullest link: changes below this are none
constexpr size_t kMaxPairs = size_t{1} << 26;

uint64_t key_of(int32_t from, int32_t to) {
  return static_cast<uint64_t>(static_cast<uint32_t>(from)) << 32 | static_cast<uint32_t>(to);
}

}  // namespace

SettledLoads::SettledLoads(const ValiantPaths& valiant)
    : valiant_(valiant),
      paths_(valiant.paths()),
      capacities_(valiant.links().capacities),
      fixed_(capacities_.size(), 0.0) {}

int32_t SettledLoads::site(int32_t accelerator, double num_bytes, bool is_source) {
  int32_t link = -1;
  const int32_t vertex = valiant_.site(accelerator, is_source, link);
  if (link >= 0) fixed_[static_cast<size_t>(link)] += num_bytes;
  return vertex;
}

void SettledLoads::add_pair(int32_t src, int32_t dst, int32_t from, int32_t to, double num_bytes) {
  if (from == to || num_bytes == 0) return;
  const uint64_t key = key_of(from, to);
  const auto [found, is_new] = pair_of_.try_emplace(key, pairs_.size());
  if (is_new) {
    if (pairs_.size() == kMaxPairs) {
      ROSTAM_THROW(ConfigError, "routing ugal settles at most "
                                    << kMaxPairs << " pairs of switches (or accelerators "
                                    << "that forward) without time, and this pattern has more; take routing spray or "
                                    << "valiant, or a smaller fabric");
    }
    pairs_.push_back({from, to, -1, 0, 0});
    ends_of_[key] = {src, dst};
  }
  pairs_[found->second].bytes += num_bytes;
}

void SettledLoads::add(int32_t src, int32_t dst, double num_bytes) {
  if (src == dst || num_bytes == 0) return;
  const int32_t from = site(src, num_bytes, true), to = site(dst, num_bytes, false);
  add_pair(src, dst, from, to, num_bytes);
}

void SettledLoads::add_uniform(const std::vector<int32_t>& members, double num_bytes) {
  struct Group {
    int32_t first = -1;  // accelerator
    double count = 0;
  };
  std::map<int32_t, Group> sources, targets;
  const double others = num_bytes * static_cast<double>(members.size() - 1);
  for (const int32_t one : members) {
    for (const bool is_source : {true, false}) {
      Group& group = (is_source ? sources : targets)[site(one, others, is_source)];
      if (group.count == 0) group.first = one;
      ++group.count;
    }
  }
  for (const auto& [to, target] : targets) {
    for (const auto& [from, source] : sources) {
      if (source.first == target.first) continue;
      add_pair(source.first, target.first, from, to, num_bytes * source.count * target.count);
    }
  }
}

// Which vertices each pair goes by, and what else the rounds need.
void SettledLoads::find_lists() {
  std::sort(pairs_.begin(), pairs_.end(),
            [](const Pair& a, const Pair& b) { return a.to != b.to ? a.to < b.to : a.from < b.from; });
  const auto num_vertices = static_cast<size_t>(valiant_.fabric().num_vertices());
  std::map<std::vector<int32_t>, int32_t> known;
  std::vector<uint8_t> is_site(num_vertices, 0), is_target(num_vertices, 0);
  InterruptPoll poll;
  for (Pair& pair : pairs_) {
    poll();
    const auto [src, dst] = ends_of_.at(key_of(pair.from, pair.to));
    is_site[static_cast<size_t>(pair.from)] = is_target[static_cast<size_t>(pair.to)] = 1;
    std::vector<int32_t> by = valiant_.by_way_of(src, dst);
    if (by.empty()) continue;
    const auto [found, is_new] = known.try_emplace(std::move(by), static_cast<int32_t>(lists_.size()));
    pair.list = found->second;
    if (!is_new) continue;
    List list;
    list.by = found->first;
    list.holds.assign(num_vertices, 0);
    for (const int32_t v : list.by) {
      list.holds[static_cast<size_t>(v)] = is_site[static_cast<size_t>(v)] = is_target[static_cast<size_t>(v)] = 1;
    }
    list.cost_to.resize(num_vertices);
    list.cost_from.resize(num_vertices);
    lists_.push_back(std::move(list));
  }
  for (size_t v = 0; v < num_vertices; ++v) {
    if (is_site[v] != 0) sites_.push_back(static_cast<int32_t>(v));
    if (is_target[v] != 0) targets_.push_back(static_cast<int32_t>(v));
  }
  minimal_cost_.resize(pairs_.size());
  valiant_cost_.resize(pairs_.size());
}

double SettledLoads::fullest_s(const std::vector<double>& loads) const {
  double fullest = 0;
  for (size_t l = 0; l < loads.size(); ++l) fullest = std::max(fullest, loads[l] / capacities_[l]);
  return fullest;
}

void SettledLoads::find_prices(const std::vector<double>& loads, double fullest_s) {
  prices_.resize(loads.size());
  for (size_t l = 0; l < loads.size(); ++l) {
    prices_[l] = (std::pow(loads[l] / capacities_[l] / fullest_s, kPower - 1) + kPresence) / capacities_[l];
  }
}

// Of both ways of every pair, from the costs of minimal paths to one vertex after another.
void SettledLoads::find_costs() {
  for (List& list : lists_) {
    std::fill(list.cost_to.begin(), list.cost_to.end(), 0.0);
    std::fill(list.cost_from.begin(), list.cost_from.end(), 0.0);
  }
  std::vector<double> cost;  // by vertex, of sites_
  size_t next = 0;
  for (const int32_t target : targets_) {
    paths_.find_costs_to(target, prices_, sites_, cost);
    for (List& list : lists_) {
      const auto count = static_cast<double>(list.by.size());
      if (list.holds[static_cast<size_t>(target)] != 0) {
        for (const int32_t v : sites_) list.cost_to[static_cast<size_t>(v)] += cost[static_cast<size_t>(v)] / count;
      }
      double sum = 0;
      for (const int32_t v : list.by) sum += cost[static_cast<size_t>(v)];
      list.cost_from[static_cast<size_t>(target)] = sum / count;
    }
    for (; next < pairs_.size() && pairs_[next].to == target; ++next) {
      minimal_cost_[next] = cost[static_cast<size_t>(pairs_[next].from)];
    }
  }
  for (size_t p = 0; p < pairs_.size(); ++p) {
    if (pairs_[p].list < 0) continue;
    const List& list = lists_[static_cast<size_t>(pairs_[p].list)];
    valiant_cost_[p] =
        list.cost_to[static_cast<size_t>(pairs_[p].from)] + list.cost_from[static_cast<size_t>(pairs_[p].to)];
  }
}

// Moved towards the cheaper way by how much cheaper it is.
double SettledLoads::better_share(size_t pair) const {
  if (pairs_[pair].list < 0) return 0;
  const double minimal = minimal_cost_[pair], valiant = valiant_cost_[pair];
  return std::clamp(pairs_[pair].share + (minimal - valiant) / std::max(minimal, valiant), 0.0, 1.0);
}

// Valiant's bytes are those that go minimal ways to the vertices between, and on from them.
std::vector<double> SettledLoads::loads_of(const std::vector<double>& shares) {
  const auto num_vertices = static_cast<size_t>(valiant_.fabric().num_vertices());
  for (List& list : lists_) {
    list.sent.assign(num_vertices, 0.0);
    list.delivered.assign(num_vertices, 0.0);
  }
  for (size_t p = 0; p < pairs_.size(); ++p) {
    if (pairs_[p].list < 0 || shares[p] == 0) continue;
    List& list = lists_[static_cast<size_t>(pairs_[p].list)];
    const double part = shares[p] * pairs_[p].bytes / static_cast<double>(list.by.size());
    list.sent[static_cast<size_t>(pairs_[p].from)] += part;
    list.delivered[static_cast<size_t>(pairs_[p].to)] += part;
  }
  std::vector<double> loads = fixed_, held(num_vertices);
  size_t next = 0;
  for (const int32_t target : targets_) {
    std::fill(held.begin(), held.end(), 0.0);
    for (; next < pairs_.size() && pairs_[next].to == target; ++next) {
      held[static_cast<size_t>(pairs_[next].from)] += (1 - shares[next]) * pairs_[next].bytes;
    }
    for (const List& list : lists_) {
      if (list.holds[static_cast<size_t>(target)] != 0) {
        for (const int32_t v : sites_) held[static_cast<size_t>(v)] += list.sent[static_cast<size_t>(v)];
      }
      const double part = list.delivered[static_cast<size_t>(target)];
      if (part == 0) continue;
      for (const int32_t v : list.by) held[static_cast<size_t>(v)] += part;
    }
    held[static_cast<size_t>(target)] = 0;
    paths_.add_loads_to(target, held, loads);
  }
  return loads;
}

// How far along `change` the sum of all links' costs falls, 1 at most.
double SettledLoads::step_along(const std::vector<double>& loads, const std::vector<double>& change,
                                double fullest_s) const {
  const auto slope = [&](double step) {
    double sum = 0;
    for (size_t l = 0; l < loads.size(); ++l) {
      if (change[l] == 0) continue;
      const double full = std::max(0.0, loads[l] + step * change[l]) / capacities_[l] / fullest_s;
      sum += (std::pow(full, kPower - 1) + kPresence) * change[l] / capacities_[l];
    }
    return sum;
  };
  if (slope(1) <= 0) return 1;
  double low = 0, high = 1;
  for (int k = 0; k < 30; ++k) {
    const double middle = (low + high) / 2;
    (slope(middle) <= 0 ? low : high) = middle;
  }
  return low;
}

std::vector<double> SettledLoads::loads() {
  find_lists();
  std::vector<double> shares(pairs_.size(), 0.0);
  std::vector<double> now = loads_of(shares), best = now;
  double least = fullest_s(best), before = least;
  int num_idle = 0;
  for (int round = 0; round < kMaxRounds && num_idle < kPatience && least > 0 && !lists_.empty(); ++round) {
    const double fullest = fullest_s(now);
    find_prices(now, fullest);
    find_costs();
    for (size_t p = 0; p < pairs_.size(); ++p) shares[p] = better_share(p);
    std::vector<double> change = loads_of(shares);
    double largest = 0;
    for (size_t l = 0; l < now.size(); ++l) {
      change[l] -= now[l];
      largest = std::max(largest, std::abs(change[l]) / capacities_[l]);
    }
    if (largest < kSettled * fullest) break;
    const double step = step_along(now, change, fullest);
    for (size_t l = 0; l < now.size(); ++l) now[l] = std::max(0.0, now[l] + step * change[l]);
    for (size_t p = 0; p < pairs_.size(); ++p) pairs_[p].share += step * (shares[p] - pairs_[p].share);
    const double reached = fullest_s(now);
    if (reached < least) {
      least = reached;
      best = now;
    }
    ++num_idle;
    if (least < before * (1 - kProgress)) {
      before = least;
      num_idle = 0;
    }
  }
  return best;
}

}  // namespace rostam::routing
