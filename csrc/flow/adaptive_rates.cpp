#include "flow/adaptive_rates.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <unordered_map>
#include <utility>

#include "sim/errors.h"
#include "sim/interrupt.h"

namespace rostam::flow {

namespace {

// Loads and rates are in units of a power of two near the largest capacity, so that these are shares of it.
constexpr double kZero = 1e-11;          // of the least capacity: less is rounding
constexpr double kStill = 1e-15;         // of values: a lesser step is rounding
constexpr double kCostSlack = 1e-9;      // of reduced costs
constexpr double kPivot = 1e-9;          // the least pivot
constexpr double kSmallPivot = 1e-6;     // smaller ones are followed by an inverse anew
constexpr double kLeastShare = 1e-12;    // of a flow on a path, and of the least capacity
constexpr double kOwnDirection = 1e-9;   // of a difference of points: less lies along the others
constexpr double kGap = 1e-10;           // of the sum of squares
constexpr double kWorstGap = 1e-6;       // of it, where rounding stops the search
constexpr size_t kMaxRows = 512;         // a solve then takes some ten seconds
constexpr int32_t kRefactorEvery = 100;  // steps

using Vector = std::vector<double>;
using Fine = long double;  // of values: a small link's flow is often the rest of a large one's

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

class Program {
 public:
  Program(const std::vector<Demand>& demands, const std::vector<double>& capacities);

  // The rate of every demand's flows, scaled.
  void raise_levels();
  // To the vertex with the least sum of cost x load at the rates that were found.
  void minimize(const Vector& cost);

  Vector loads() const;  // of links; those of caps' rows count as 0
  // Of each path that carries something: {path, flow}.
  std::vector<std::pair<uint32_t, double>> path_flows() const;

  double scale() const { return scale_; }
  double rate(size_t k) const { return static_cast<double>(demands_[k].base / demands_[k].weight); }
  const std::vector<uint32_t>& rows_of(uint32_t path) const { return paths_[path].rows; }
  uint32_t demand_of(uint32_t path) const { return paths_[path].demand; }
  int32_t row_of(int32_t link) const { return row_of_.at(link); }
  size_t num_rows() const { return capacity_.size(); }
  int32_t link_of(uint32_t row) const { return link_of_[row]; }  // -1: a cap's
  double capacity(size_t row) const { return capacity_[row]; }

 private:
  static constexpr int64_t kRise = -1;  // the variable by which the level rises; slacks follow below, paths from 0

  struct Path {
    uint32_t demand = 0;
    std::vector<uint32_t> rows;
    int32_t place = kNowhere;
  };
  static constexpr int32_t kNowhere = -1, kKey = -2;
  struct Hop {
    uint32_t row, node;
  };
  struct State {
    std::vector<uint32_t> first_hop;  // per node, and the end
    std::vector<Hop> hops;
    double weight = 1;
    Fine base = 0;  // what it sends without the rise
    bool is_open = true;
    int32_t cap_row = -1;
    uint32_t key = 0;
    std::vector<uint32_t> places;  // basic columns of its other paths
    std::map<std::vector<uint32_t>, uint32_t> known;
  };

  static int64_t slack(uint32_t row) { return -2 - static_cast<int64_t>(row); }
  static bool is_slack(int64_t variable) { return variable <= -2; }
  static uint32_t row_of_slack(int64_t variable) { return static_cast<uint32_t>(-2 - variable); }

  uint32_t intern(uint32_t demand, std::vector<uint32_t> rows);
  double shortest(uint32_t demand, const Vector& length);
  std::vector<uint32_t> found_path(uint32_t demand) const;
  double length_of(uint32_t path) const;
  void solve_direction();
  void eliminate(uint32_t place);
  void take_key(uint32_t demand, uint32_t path);
  void fill_column(int64_t variable, Vector& column) const;
  void refactor();
  std::vector<Fine> left_capacity() const;
  void add_solution(const std::vector<Fine>& of);
  void set_values();
  void refine_values();
  void optimize(const Vector* cost);
  bool find_entering(const Vector* cost, bool is_careful, int64_t& entering);
  bool pivot(int64_t entering, bool is_careful);
  void make_key(uint32_t demand, uint32_t place);
  void replace(uint32_t place, int64_t entering);
  void drop_rise();

  std::vector<State> demands_;
  std::vector<Path> paths_;
  Vector capacity_;
  std::vector<int32_t> link_of_;
  std::unordered_map<int32_t, int32_t> row_of_;
  double scale_ = 1;
  double least_capacity_ = 0;
  double zero_ = kZero;
  Fine rise_base_ = 0;  // the level that was reached

  std::vector<int64_t> basis_;  // per place: its variable
  Vector inverse_;              // of the basis, row by row: per place
  std::vector<Fine> value_;     // per place
  Vector dual_;                 // per row
  int32_t rise_place_ = kNowhere;
  int32_t num_since_refactor_ = 0;
  // Of a step.
  Vector column_, direction_, length_, left_;
  std::vector<uint32_t> next_, entries_;
  std::vector<uint8_t> is_basic_;
};

Program::Program(const std::vector<Demand>& demands, const std::vector<double>& capacities) {
  double largest = 0;
  for (const Demand& demand : demands) {
    for (const routing::Steps::Hop& hop : demand.paths->hops) {
      if (!row_of_.emplace(hop.link, static_cast<int32_t>(capacity_.size())).second) continue;
      capacity_.push_back(capacities[static_cast<size_t>(hop.link)]);
      link_of_.push_back(hop.link);
      largest = std::max(largest, capacity_.back());
    }
  }
  if (row_of_.size() > kMaxRows) {
    ROSTAM_THROW(ConfigError, "routing adaptive has " << row_of_.size()
                                                      << " links to divide messages over at once, and "
                                                      << "solves for up to " << kMaxRows
                                                      << " that messages share; take routing=spray, or a "
                                                      << "smaller system");
  }
  if (largest > 0) scale_ = std::exp2(std::ceil(std::log2(largest)));
  for (double& one : capacity_) one /= scale_;
  for (const Demand& demand : demands) {
    State state;
    state.weight = demand.num_flows;
    for (const routing::Steps::Node& node : demand.paths->nodes) {
      state.first_hop.push_back(static_cast<uint32_t>(state.hops.size()));
      for (uint32_t h = node.first_hop; h < node.end_hop; ++h) {
        const routing::Steps::Hop& hop = demand.paths->hops[h];
        state.hops.push_back({static_cast<uint32_t>(row_of_.at(hop.link)), hop.node});
      }
    }
    state.first_hop.push_back(static_cast<uint32_t>(state.hops.size()));
    if (demand.rate_cap > 0) {
      state.cap_row = static_cast<int32_t>(capacity_.size());
      capacity_.push_back(demand.rate_cap * demand.num_flows / scale_);
      link_of_.push_back(-1);
    }
    demands_.push_back(std::move(state));
  }
  least_capacity_ = largest / scale_;
  for (const double one : capacity_) {
    if (one > 0) least_capacity_ = std::min(least_capacity_, one);
  }
  if (largest > 0) zero_ *= least_capacity_ * scale_ / largest;
  const Vector none(capacity_.size(), 0.0);
  for (uint32_t k = 0; k < demands_.size(); ++k) {
    shortest(k, none);
    demands_[k].key = intern(k, found_path(k));
    paths_[demands_[k].key].place = kKey;
  }
  for (uint32_t row = 0; row < capacity_.size(); ++row) basis_.push_back(slack(row));
  refactor();
}

uint32_t Program::intern(uint32_t demand, std::vector<uint32_t> rows) {
  const auto [found, is_new] = demands_[demand].known.emplace(rows, static_cast<uint32_t>(paths_.size()));
  if (is_new) paths_.push_back({demand, std::move(rows), kNowhere});
  return found->second;
}

// Length of the first of the shortest paths; next_ leads along it.
double Program::shortest(uint32_t demand, const Vector& length) {
  const State& state = demands_[demand];
  const size_t num_nodes = state.first_hop.size() - 1;
  left_.assign(num_nodes, std::numeric_limits<double>::infinity());
  next_.resize(num_nodes);
  left_.back() = 0;
  // Backwards: hops lead to later nodes.
  for (size_t n = num_nodes - 1; n-- > 0;) {
    for (uint32_t h = state.first_hop[n]; h < state.first_hop[n + 1]; ++h) {
      const double found = left_[state.hops[h].node] + length[state.hops[h].row];
      if (found >= left_[n]) continue;
      left_[n] = found;
      next_[n] = h;
    }
  }
  return left_.front() + (state.cap_row >= 0 ? length[static_cast<size_t>(state.cap_row)] : 0);
}

// The path that shortest() has found: rows in the order of its hops, a cap's row last.
std::vector<uint32_t> Program::found_path(uint32_t demand) const {
  const State& state = demands_[demand];
  std::vector<uint32_t> rows;
  for (uint32_t n = 0; n + 2 < state.first_hop.size();) {
    rows.push_back(state.hops[next_[n]].row);
    n = state.hops[next_[n]].node;
  }
  if (state.cap_row >= 0) rows.push_back(static_cast<uint32_t>(state.cap_row));
  return rows;
}

// What a variable puts on each row as it grows by one while all else but key paths stays.
void Program::fill_column(int64_t variable, Vector& column) const {
  column.assign(capacity_.size(), 0.0);
  if (is_slack(variable)) {
    column[row_of_slack(variable)] = 1;
  } else if (variable == kRise) {
    for (const State& state : demands_) {
      if (!state.is_open) continue;
      for (const uint32_t row : paths_[state.key].rows) column[row] += state.weight;
    }
  } else {
    const Path& path = paths_[static_cast<size_t>(variable)];
    for (const uint32_t row : path.rows) column[row] += 1;
    for (const uint32_t row : paths_[demands_[path.demand].key].rows) column[row] -= 1;
  }
}

// The inverse anew, by Gauss and Jordan with the largest pivots.
void Program::refactor() {
  const size_t n = capacity_.size();
  Vector matrix(n * n, 0.0);
  for (size_t place = 0; place < n; ++place) {
    fill_column(basis_[place], column_);
    for (size_t row = 0; row < n; ++row) matrix[row * n + place] = column_[row];
  }
  inverse_.assign(n * n, 0.0);
  for (size_t i = 0; i < n; ++i) inverse_[i * n + i] = 1;
  for (size_t at = 0; at < n; ++at) {
    poll_interrupt();
    size_t best = at;
    for (size_t row = at + 1; row < n; ++row) {
      if (std::abs(matrix[row * n + at]) > std::abs(matrix[best * n + at])) best = row;
    }
    const double pivot = matrix[best * n + at];
    ROSTAM_CHECK(std::abs(pivot) > kPivot, "the basis of " << n << " links is singular");
    if (best != at) {
      std::swap_ranges(&matrix[at * n], &matrix[at * n] + n, &matrix[best * n]);
      std::swap_ranges(&inverse_[at * n], &inverse_[at * n] + n, &inverse_[best * n]);
    }
    for (size_t i = 0; i < n; ++i) {
      matrix[at * n + i] /= pivot;
      inverse_[at * n + i] /= pivot;
    }
    for (size_t row = 0; row < n; ++row) {
      const double factor = matrix[row * n + at];
      if (row == at || factor == 0) continue;
      for (size_t i = 0; i < n; ++i) {
        matrix[row * n + i] -= factor * matrix[at * n + i];
        inverse_[row * n + i] -= factor * inverse_[at * n + i];
      }
    }
  }
  num_since_refactor_ = 0;
  set_values();
}

// What the base leaves of each row's capacity.
std::vector<Fine> Program::left_capacity() const {
  std::vector<Fine> left(capacity_.begin(), capacity_.end());
  for (const State& state : demands_) {
    if (state.base == 0) continue;
    for (const uint32_t row : paths_[state.key].rows) left[row] -= state.base;
  }
  return left;
}

void Program::add_solution(const std::vector<Fine>& of) {
  const size_t n = capacity_.size();
  for (size_t place = 0; place < n; ++place) {
    Fine sum = 0;
    const double* row = &inverse_[place * n];
    for (size_t i = 0; i < n; ++i) sum += row[i] * of[i];
    value_[place] += sum;
  }
}

void Program::set_values() {
  value_.assign(capacity_.size(), 0);
  add_solution(left_capacity());
}

// Mends what rounding of the inverse has done to the values, which a small link would feel.
void Program::refine_values() {
  std::vector<Fine> left = left_capacity();
  for (size_t place = 0; place < left.size(); ++place) {
    if (value_[place] == 0) continue;
    fill_column(basis_[place], column_);
    for (size_t row = 0; row < left.size(); ++row) left[row] -= value_[place] * column_[row];
  }
  add_solution(left);
}

Vector Program::loads() const {
  Vector loads(capacity_.size(), 0.0);
  for (const auto& [path, flow] : path_flows()) {
    for (const uint32_t row : paths_[path].rows) {
      if (link_of_[row] >= 0) loads[row] += flow;
    }
  }
  return loads;
}

std::vector<std::pair<uint32_t, double>> Program::path_flows() const {
  std::vector<std::pair<uint32_t, double>> flows;
  const Fine rise = rise_place_ == kNowhere ? 0 : value_[static_cast<size_t>(rise_place_)];
  for (const State& state : demands_) {
    const Fine total = state.base + (state.is_open ? state.weight * rise : 0);
    const Fine least = kLeastShare * std::min(total, Fine{least_capacity_});
    Fine others = 0;
    const size_t first = flows.size();
    for (const uint32_t place : state.places) {
      const Fine flow = std::min(std::max(Fine{0}, value_[place]), total - others);
      if (flow <= least) continue;
      flows.emplace_back(static_cast<uint32_t>(basis_[place]), static_cast<double>(flow));
      others += flow;
    }
    if (total - others > least) {
      flows.emplace_back(state.key, static_cast<double>(total - others));
    } else if (others > 0) {
      for (size_t i = first; i < flows.size(); ++i) flows[i].second *= static_cast<double>(total / others);
    }
  }
  return flows;
}

// cost: of load, by row; null: the level is to rise.
void Program::optimize(const Vector* cost) {
  const size_t n = capacity_.size();
  int32_t num_still = 0;
  for (;;) {
    poll_interrupt();
    // Dual values of the rows: the costs of the basic variables times the inverse.
    dual_.assign(n, 0.0);
    for (size_t place = 0; place < n; ++place) {
      const int64_t variable = basis_[place];
      double price = 0;
      if (variable == kRise) {
        price = cost == nullptr ? -1 : 0;
      } else if (variable >= 0 && cost != nullptr) {
        const Path& path = paths_[static_cast<size_t>(variable)];
        for (const uint32_t row : path.rows) price += (*cost)[row];
        for (const uint32_t row : paths_[demands_[path.demand].key].rows) price -= (*cost)[row];
      }
      if (price == 0) continue;
      const double* row = &inverse_[place * n];
      for (size_t i = 0; i < n; ++i) dual_[i] += price * row[i];
    }
    // Long standstills end with the least variable that helps (Bland): no circle.
    const bool is_careful = num_still > 200;
    int64_t entering = 0;
    if (!find_entering(cost, is_careful, entering)) return refine_values();
    num_still = pivot(entering, is_careful) ? 0 : num_still + 1;
  }
}

double Program::length_of(uint32_t path) const {
  double length = 0;
  for (const uint32_t row : paths_[path].rows) length += length_[row];
  return length;
}

// A variable of negative reduced cost: of the most, or, where it is careful, the first in the order of variables.
bool Program::find_entering(const Vector* cost, bool is_careful, int64_t& entering) {
  const size_t n = capacity_.size();
  double best = -kCostSlack;
  bool is_found = false;
  const auto offer = [&](int64_t variable, double reduced) {
    if (reduced >= best) return;
    best = reduced;
    entering = variable;
    is_found = true;
  };
  is_basic_.assign(n, 0);
  for (const int64_t variable : basis_) {
    if (is_slack(variable)) is_basic_[row_of_slack(variable)] = 1;
  }
  for (uint32_t row = static_cast<uint32_t>(n); row-- > 0;) {
    if (!is_basic_[row]) offer(slack(row), -dual_[row]);
    if (is_careful && is_found) return true;
  }
  if (cost == nullptr && rise_place_ == kNowhere) {
    fill_column(kRise, column_);
    offer(kRise, -1 - dot(dual_, column_));
    if (is_careful && is_found) return true;
  }
  length_.resize(n);
  for (size_t row = 0; row < n; ++row) length_[row] = (cost == nullptr ? 0 : (*cost)[row]) - dual_[row];
  for (uint32_t path = 0; is_careful && path < paths_.size(); ++path) {
    if (paths_[path].place != kNowhere) continue;
    offer(path, length_of(path) - length_of(demands_[paths_[path].demand].key));
    if (is_found) return true;
  }
  for (uint32_t k = 0; k < demands_.size(); ++k) {
    const double reduced = shortest(k, length_) - length_of(demands_[k].key);
    if (reduced >= best) continue;
    const uint32_t path = intern(k, found_path(k));
    if (paths_[path].place == kNowhere) offer(path, reduced);
    if (is_careful && is_found) return true;
  }
  return is_found;
}

// How fast each basic variable falls as the one of column_ grows.
void Program::solve_direction() {
  const size_t n = capacity_.size();
  direction_.assign(n, 0.0);
  entries_.clear();
  for (uint32_t i = 0; i < n; ++i) {
    if (column_[i] != 0) entries_.push_back(i);
  }
  for (size_t place = 0; place < n; ++place) {
    const double* row = &inverse_[place * n];
    double sum = 0;
    for (const uint32_t i : entries_) sum += row[i] * column_[i];
    direction_[place] = sum;
  }
}

// The entering variable grows until another one is 0, which leaves. Returns whether anything has moved.
bool Program::pivot(int64_t entering, bool is_careful) {
  const size_t n = capacity_.size();
  fill_column(entering, column_);
  solve_direction();
  double least = std::numeric_limits<double>::infinity(), largest = 0;
  int64_t leaving = 0;
  bool is_key = false, is_any = false;
  uint32_t at = 0;
  const auto consider = [&](double value, double fall, int64_t variable, bool of_key, uint32_t where) {
    if (fall <= kPivot) return;
    const double reach = std::max(0.0, value) / fall;
    const bool is_less = reach < least - zero_;
    const bool is_tied = !is_less && reach <= least + zero_;
    const bool is_better = is_careful ? variable < leaving : fall > largest;
    if (!is_less && !(is_tied && is_better)) return;
    least = std::min(least, reach);
    largest = fall;
    leaving = variable;
    is_key = of_key;
    at = where;
    is_any = true;
  };
  for (uint32_t place = 0; place < n; ++place) {
    consider(static_cast<double>(value_[place]), direction_[place], basis_[place], false, place);
  }
  const Fine rise = rise_place_ == kNowhere ? 0 : value_[static_cast<size_t>(rise_place_)];
  double rise_fall = rise_place_ == kNowhere ? 0 : direction_[static_cast<size_t>(rise_place_)];
  if (entering == kRise) rise_fall = -1;
  for (uint32_t k = 0; k < demands_.size(); ++k) {
    const State& state = demands_[k];
    Fine value = state.base + (state.is_open ? state.weight * rise : 0);
    double fall = state.is_open ? state.weight * rise_fall : 0;
    for (const uint32_t place : state.places) {
      value -= value_[place];
      fall -= direction_[place];
    }
    if (entering >= 0 && paths_[static_cast<size_t>(entering)].demand == k) fall += 1;
    // Without another path it follows the level, which leaves itself.
    const bool is_own = entering >= 0 && paths_[static_cast<size_t>(entering)].demand == k;
    if (state.places.empty() && !is_own) continue;
    consider(static_cast<double>(value), fall, static_cast<int64_t>(state.key), true, k);
  }
  ROSTAM_CHECK(is_any, "nothing ends the growth of variable " << entering << " over " << n << " links");
  const bool has_moved = least > std::max(zero_, kStill);
  if (is_key) {
    State& state = demands_[at];
    const bool is_own = entering >= 0 && paths_[static_cast<size_t>(entering)].demand == at;
    // Of the basic paths, the one that the step changes most becomes the key; else the entering one.
    uint32_t place = 0;
    double most = 0;
    for (const uint32_t one : state.places) {
      if (std::abs(direction_[one]) > most) {
        most = std::abs(direction_[one]);
        place = one;
      }
    }
    if (most <= kPivot) {
      ROSTAM_CHECK(is_own, "the key path of demand " << at << " leaves, and no other is there");
      take_key(at, static_cast<uint32_t>(entering));
      return has_moved;
    }
    make_key(at, place);
    fill_column(entering, column_);
    solve_direction();
    at = place;
  }
  replace(at, entering);
  return has_moved;
}

// The basic path at `place` becomes the key of its demand, and the key takes its place.
void Program::make_key(uint32_t k, uint32_t place) {
  const size_t n = capacity_.size();
  State& state = demands_[k];
  const auto path = static_cast<uint32_t>(basis_[place]);
  double* row = &inverse_[place * n];
  for (const uint32_t other : state.places) {
    if (other == place) continue;
    for (size_t i = 0; i < n; ++i) row[i] += inverse_[other * n + i];
  }
  if (state.is_open && rise_place_ != kNowhere) {
    const double* level = &inverse_[static_cast<size_t>(rise_place_) * n];
    for (size_t i = 0; i < n; ++i) row[i] -= state.weight * level[i];
  }
  for (size_t i = 0; i < n; ++i) row[i] = -row[i];
  basis_[place] = state.key;
  paths_[state.key].place = static_cast<int32_t>(place);
  state.key = path;
  paths_[path].place = kKey;
  set_values();
}

// The entering path becomes the key, and the key leaves. The level's column, and the demand's other ones, are measured
// from the key. REQUIRES: direction_ is the path's.
void Program::take_key(uint32_t k, uint32_t path) {
  State& state = demands_[k];
  paths_[state.key].place = kNowhere;
  state.key = path;
  paths_[path].place = kKey;
  if (!state.places.empty()) return refactor();
  if (!state.is_open || rise_place_ == kNowhere) return set_values();
  for (double& one : direction_) one *= state.weight;
  direction_[static_cast<size_t>(rise_place_)] += 1;
  eliminate(static_cast<uint32_t>(rise_place_));
}

// The column at `place` is another one from now on. REQUIRES: direction_ is that one's.
void Program::eliminate(uint32_t place) {
  const size_t n = capacity_.size();
  const double pivot = direction_[place];
  if (++num_since_refactor_ >= kRefactorEvery || std::abs(pivot) < kSmallPivot) return refactor();
  double* row = &inverse_[place * n];
  for (size_t i = 0; i < n; ++i) row[i] /= pivot;
  for (size_t p = 0; p < n; ++p) {
    const double factor = direction_[p];
    if (p == place || factor == 0) continue;
    double* other = &inverse_[p * n];
    for (size_t i = 0; i < n; ++i) other[i] -= factor * row[i];
  }
  set_values();
}

// REQUIRES: direction_ is the entering variable's.
void Program::replace(uint32_t place, int64_t entering) {
  const int64_t leaving = basis_[place];
  if (leaving >= 0) {
    Path& path = paths_[static_cast<size_t>(leaving)];
    path.place = kNowhere;
    std::vector<uint32_t>& places = demands_[path.demand].places;
    places.erase(std::find(places.begin(), places.end(), place));
  } else if (leaving == kRise) {
    rise_place_ = kNowhere;
  }
  basis_[place] = entering;
  if (entering >= 0) {
    Path& path = paths_[static_cast<size_t>(entering)];
    path.place = static_cast<int32_t>(place);
    demands_[path.demand].places.push_back(place);
  } else if (entering == kRise) {
    rise_place_ = static_cast<int32_t>(place);
  }
  eliminate(place);
}

// Takes the rise out of the basis, what it has reached being kept: the slack of the full link that holds it most, 0,
// takes its place.
void Program::drop_rise() {
  if (rise_place_ == kNowhere) return;
  const size_t n = capacity_.size();
  const auto place = static_cast<uint32_t>(rise_place_);
  std::vector<uint8_t> is_basic(n, 0);
  for (const int64_t variable : basis_) {
    if (is_slack(variable)) is_basic[row_of_slack(variable)] = 1;
  }
  uint32_t best = 0;
  double most = 0;
  for (uint32_t row = 0; row < n; ++row) {
    const double size = std::abs(inverse_[place * n + row]);
    if (is_basic[row] || size <= most) continue;
    most = size;
    best = row;
  }
  ROSTAM_CHECK(most > 0, "no full link holds the level");
  fill_column(slack(best), column_);
  for (size_t p = 0; p < n; ++p) direction_[p] = inverse_[p * n + best];
  replace(place, slack(best));
}

void Program::raise_levels() {
  size_t num_open = demands_.size();
  while (num_open > 0) {
    optimize(nullptr);
    if (rise_place_ != kNowhere) rise_base_ += std::max(Fine{0}, value_[static_cast<size_t>(rise_place_)]);
    // The dual value of a demand: the length of its key path, whose sum over weights is 1. What is above 0 is held.
    std::vector<double> held(demands_.size(), 0.0);
    double most = 0;
    for (size_t k = 0; k < demands_.size(); ++k) {
      if (!demands_[k].is_open) continue;
      for (const uint32_t row : paths_[demands_[k].key].rows) held[k] -= dual_[row];
      held[k] *= demands_[k].weight;
      most = std::max(most, held[k]);
    }
    ROSTAM_CHECK(most > 0, "no demand is held at level " << rise_base_ * scale_);
    for (State& state : demands_) {
      if (state.is_open) state.base = state.weight * rise_base_;
    }
    drop_rise();
    for (size_t k = 0; k < demands_.size(); ++k) {
      if (!demands_[k].is_open || held[k] <= most * 1e-7) continue;
      demands_[k].is_open = false;
      --num_open;
    }
    set_values();
  }
}

void Program::minimize(const Vector& cost) {
  // In units of a power of two near the largest, so that the slack of reduced costs is a share of it.
  const double largest = *std::max_element(cost.begin(), cost.end());
  Vector scaled = cost;
  if (largest > 0) {
    for (double& one : scaled) one /= std::exp2(std::ceil(std::log2(largest)));
  }
  optimize(&scaled);
}

// A point of the polytope of loads, with what makes it.
struct Point {
  Vector loads;
  std::vector<std::pair<uint32_t, double>> flows;  // empty: the even division
};

// Weights that sum to 1 and make the affine combination of the points of least norm; none where the points span no hull
// of their own. By an orthogonal basis of their differences (Gram and Schmidt, twice), so that what a small link
// carries counts beside what a large one does, which it would not in products of loads.
Vector affine_weights(const std::vector<Point>& points) {
  const Vector& origin = points.front().loads;
  const size_t m = points.size() - 1;
  std::vector<Vector> basis;
  std::vector<Vector> triangle(m, Vector(m, 0.0));  // differences by the basis: [basis][difference]
  for (size_t j = 0; j < m; ++j) {
    poll_interrupt();
    Vector left = points[j + 1].loads;
    for (size_t i = 0; i < left.size(); ++i) left[i] -= origin[i];
    const double length = std::sqrt(dot(left, left));
    for (int32_t pass = 0; pass < 2; ++pass) {
      for (size_t k = 0; k < basis.size(); ++k) {
        const double part = dot(basis[k], left);
        triangle[k][j] += part;
        for (size_t i = 0; i < left.size(); ++i) left[i] -= part * basis[k][i];
      }
    }
    triangle[j][j] = std::sqrt(dot(left, left));
    if (!(triangle[j][j] > kOwnDirection * length)) return {};
    for (double& one : left) one /= triangle[j][j];
    basis.push_back(std::move(left));
  }
  Vector weights(m + 1, 1.0);
  for (size_t j = m; j-- > 0;) {
    double sum = -dot(basis[j], origin);
    for (size_t k = j + 1; k < m; ++k) sum -= triangle[j][k] * weights[k + 1];
    weights[j + 1] = sum / triangle[j][j];
    weights.front() -= weights[j + 1];
  }
  return weights;
}

// Wolfe's algorithm: points and their weights.
class LeastNorm {
 public:
  LeastNorm(Program& program, Point first) : program_(program) { add(std::move(first), 1); }

  // Throws: InternalError where rounding, or the limit of steps, ends it far from the least.
  void run() {
    const size_t most = 10 * program_.num_rows() + 100;
    double gap = 0;
    for (size_t step = 0; step < most; ++step) {
      const Vector at = combined();
      program_.minimize(at);
      Point next{program_.loads(), program_.path_flows()};
      const double norm = dot(at, at);
      gap = (norm - dot(at, next.loads)) / norm;
      if (!(gap > kGap)) return;
      add(std::move(next), 0);
      if (!settle()) break;
    }
    if (gap > kWorstGap) {
      throw InternalError("adaptive routing: the division of messages ends " + std::to_string(gap) +
                          " of its sum of squared loads above the least");
    }
  }

  const std::vector<Point>& points() const { return points_; }
  const Vector& weights() const { return weights_; }

 private:
  Vector combined() const {
    Vector sum(program_.num_rows(), 0.0);
    for (size_t p = 0; p < points_.size(); ++p) {
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += weights_[p] * points_[p].loads[i];
    }
    return sum;
  }

  void add(Point point, double weight) {
    points_.push_back(std::move(point));
    weights_.push_back(weight);
  }

  void remove(size_t p) {
    points_.erase(points_.begin() + static_cast<std::ptrdiff_t>(p));
    weights_.erase(weights_.begin() + static_cast<std::ptrdiff_t>(p));
  }

  // Towards the least point of the affine hull, dropping points that it lies behind. False: they do not span one.
  bool settle() {
    for (;;) {
      const Vector aim = affine_weights(points_);
      if (aim.empty()) {
        remove(points_.size() - 1);
        return false;
      }
      double step = 1;
      for (size_t p = 0; p < aim.size(); ++p) {
        if (aim[p] <= 0 && weights_[p] > aim[p]) step = std::min(step, weights_[p] / (weights_[p] - aim[p]));
      }
      for (size_t p = 0; p < aim.size(); ++p) weights_[p] += step * (aim[p] - weights_[p]);
      if (step >= 1) return true;
      size_t least = 0;
      for (size_t p = 0; p < weights_.size(); ++p) {
        if (weights_[p] < weights_[least]) least = p;
      }
      remove(least);
      double sum = 0;
      for (const double weight : weights_) sum += weight;
      for (double& weight : weights_) weight /= sum;
    }
  }

  Program& program_;
  std::vector<Point> points_;
  Vector weights_;
};

}  // namespace

std::vector<Division> adaptive_rates(const std::vector<Demand>& demands, const std::vector<double>& capacities) {
  Program program(demands, capacities);
  program.raise_levels();
  // The even division, if no link is above its capacity with it, else the vertex that gave the rates.
  Point first;
  first.loads.assign(program.num_rows(), 0.0);
  for (size_t k = 0; k < demands.size(); ++k) {
    const double sent = program.rate(k) * demands[k].num_flows;
    for (const routing::LinkShare& part : *demands[k].even) {
      first.loads[static_cast<size_t>(program.row_of(part.link))] += part.share * sent;
    }
  }
  bool is_even = true;
  for (size_t row = 0; row < program.num_rows(); ++row) {
    if (first.loads[row] > program.capacity(row) * (1 + kZero)) is_even = false;
  }
  if (!is_even) first = {program.loads(), program.path_flows()};
  LeastNorm least(program, std::move(first));
  least.run();

  std::vector<Division> found(demands.size());
  std::vector<std::map<int32_t, double>> on_link(demands.size());
  for (size_t p = 0; p < least.points().size(); ++p) {
    const double weight = least.weights()[p];
    if (weight <= kLeastShare) continue;
    if (is_even && least.points()[p].flows.empty()) {
      for (size_t k = 0; k < demands.size(); ++k) {
        const double sent = program.rate(k) * demands[k].num_flows;
        for (const routing::LinkShare& part : *demands[k].even) on_link[k][part.link] += weight * sent * part.share;
      }
    }
    for (const auto& [path, flow] : least.points()[p].flows) {
      for (const uint32_t row : program.rows_of(path)) {
        if (program.link_of(row) >= 0) on_link[program.demand_of(path)][program.link_of(row)] += weight * flow;
      }
    }
  }
  for (size_t k = 0; k < demands.size(); ++k) {
    found[k].rate = program.rate(k) * program.scale();
    const double sent = program.rate(k) * demands[k].num_flows;
    if (sent <= 0) {
      found[k].rate = 0;
      found[k].shares = *demands[k].even;
      continue;
    }
    for (const auto& [link, flow] : on_link[k]) {
      const double share = std::abs(flow / sent - 1) < 1e-11 ? 1 : flow / sent;
      if (share > kLeastShare) found[k].shares.push_back({link, share});
    }
  }
  return found;
}

}  // namespace rostam::flow
