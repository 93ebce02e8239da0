#include "analytic/closed_forms.h"

#include <algorithm>

#include "sim/checked.h"

namespace rostam::analytic {

namespace {

int32_t log2_up(int32_t p) {
  int32_t rounds = 0;
  while ((int64_t{1} << rounds) < p) ++rounds;
  return rounds;
}

SimTime times(int64_t count, SimTime step) { return step.times(count); }

SimTime message(const CollectiveCase& given, int64_t num_bytes) {
  return given.alpha + transmit_time(static_cast<double>(num_bytes), given.bytes_per_s);
}

SimTime chunk_message(const CollectiveCase& given) {
  return message(given, divide_up(given.num_bytes, given.num_ranks));
}

SimTime ring_pass(const CollectiveCase& given) { return times(given.num_ranks - 1, chunk_message(given)); }

SimTime ring_all_reduce(const CollectiveCase& given) { return times(2, ring_pass(given)); }

SimTime bidirectional_ring_all_reduce(const CollectiveCase& given) {
  CollectiveCase half = given;
  half.num_bytes = divide_up(given.num_bytes, 2);
  return ring_all_reduce(half);
}

// One pass of four directed rings on a quarter of the buffer each.
SimTime dual_rings_pass(const CollectiveCase& given) {
  return times(given.num_ranks - 1, message(given, divide_up(given.num_bytes, int64_t{4} * given.num_ranks)));
}

SimTime dual_rings_all_reduce(const CollectiveCase& given) { return times(2, dual_rings_pass(given)); }

// Chunks that one copy of the torus algorithm sends in a step, and whether along its first dimension, of `inner` ranks.
std::pair<int64_t, bool> torus_send(int64_t step, int64_t inner, int64_t outer) {
  const bool is_inner = step < inner - 1 || step >= inner - 1 + 2 * (outer - 1);
  return {is_inner ? outer : 1, is_inner};
}

SimTime torus_all_reduce(const CollectiveCase& given, int64_t num_interfaces) {
  const int64_t chunk = divide_up(given.num_bytes, num_interfaces * given.num_ranks);
  SimTime total;
  for (int64_t step = 0; step < 2 * (given.rows + given.columns - 2); ++step) {
    const auto [first, first_in_row] = torus_send(step, given.columns, given.rows);
    const auto [second, second_in_column] = torus_send(step, given.rows, given.columns);
    const bool is_shared = first_in_row != second_in_column;
    total += message(given, chunk * (is_shared ? first + second : std::max(first, second)));
  }
  return total;
}

SimTime torus_2d_all_reduce(const CollectiveCase& given) { return torus_all_reduce(given, 4); }
SimTime torus_2d_unidirectional_all_reduce(const CollectiveCase& given) { return torus_all_reduce(given, 2); }

SimTime binomial_tree_broadcast(const CollectiveCase& given) {
  return times(log2_up(given.num_ranks), message(given, given.num_bytes));
}

SimTime binomial_tree_all_reduce(const CollectiveCase& given) { return times(2, binomial_tree_broadcast(given)); }

SimTime halving_doubling_all_reduce(const CollectiveCase& given) {
  int64_t power = 1;
  while (2 * power <= given.num_ranks) power *= 2;
  const int64_t chunk = divide_up(given.num_bytes, power);
  SimTime total;
  for (int64_t part = power / 2; part >= 1; part /= 2) total += times(2, message(given, part * chunk));
  if (power < given.num_ranks) total += times(2, message(given, given.num_bytes));
  return total;
}

SimTime direct_all_to_all(const CollectiveCase& given) {
  return message(given, (given.num_ranks - 1) * divide_up(given.num_bytes, given.num_ranks));
}

SimTime direct_send(const CollectiveCase& given) { return message(given, given.num_bytes); }

// Both messages of a rank that has two neighbours leave through the one interface.
SimTime halo(const CollectiveCase& given) {
  return message(given, std::min(given.num_ranks - 1, 2) * divide_up(given.num_bytes, 2));
}

struct Entry {
  const char* collective;
  const char* algorithm;
  SimTime (*time)(const CollectiveCase&);
  bool needs_grid = false;
};

constexpr Entry kEntries[] = {
    {"all_reduce", "ring", &ring_all_reduce},
    {"all_reduce", "bidirectional_ring", &bidirectional_ring_all_reduce},
    {"all_reduce", "binomial_tree", &binomial_tree_all_reduce},
    {"all_reduce", "halving_doubling", &halving_doubling_all_reduce},
    {"all_reduce", "dual_hamiltonian_rings", &dual_rings_all_reduce},
    {"all_reduce", "torus_2d", &torus_2d_all_reduce, true},
    {"all_reduce", "torus_2d_unidirectional", &torus_2d_unidirectional_all_reduce, true},
    {"reduce_scatter", "ring", &ring_pass},
    {"reduce_scatter", "dual_hamiltonian_rings", &dual_rings_pass},
    {"all_gather", "ring", &ring_pass},
    {"all_gather", "dual_hamiltonian_rings", &dual_rings_pass},
    {"all_to_all", "direct", &direct_all_to_all},
    {"broadcast", "binomial_tree", &binomial_tree_broadcast},
    {"send_recv", "direct", &direct_send},
    {"halo", "neighbours", &halo},
    {"halo_up", "neighbours", &direct_send},
    {"halo_down", "neighbours", &direct_send},
    {"shift", "ring", &direct_send},
};

}  // namespace

SimTime collective_time(const std::string& collective, const std::string& algorithm, const CollectiveCase& given) {
  if (given.num_bytes < 0) ROSTAM_THROW(ConfigError, "num_bytes is " << given.num_bytes << "; it must be >= 0");
  if (given.num_ranks < 1) ROSTAM_THROW(ConfigError, "num_ranks is " << given.num_ranks << "; it must be >= 1");
  if (!(given.bytes_per_s > 0)) {
    ROSTAM_THROW(ConfigError, "bandwidth is " << given.bytes_per_s << " bytes/s; it must be > 0");
  }
  for (const Entry& entry : kEntries) {
    if (collective != entry.collective || algorithm != entry.algorithm) continue;
    if (entry.needs_grid && given.num_ranks > 1 && int64_t{given.rows} * given.columns != given.num_ranks) {
      ROSTAM_THROW(ConfigError, collective << "/" << algorithm << " over " << given.num_ranks << " ranks on a grid of "
                                           << given.rows << " x " << given.columns << "; the grid must hold the ranks");
    }
    return given.num_ranks == 1 ? SimTime::zero() : entry.time(given);
  }
  std::string known;
  for (const std::string& name : closed_form_names()) known += (known.empty() ? "" : ", ") + name;
  ROSTAM_THROW(ConfigError, "no closed form for " << collective << "/" << algorithm << "; there are: " << known);
}

std::vector<std::string> closed_form_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.push_back(std::string(entry.collective) + "/" + entry.algorithm);
  return names;
}

}  // namespace rostam::analytic
