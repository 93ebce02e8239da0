#include "analytic/closed_forms.h"

#include <algorithm>
#include <numeric>

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

// The copies of the torus algorithms of one direction, each beginning at another side and going on to the one before.
struct Torus {
  explicit Torus(const CollectiveCase& given, bool is_aligned) {
    for (const int64_t side : given.grid) {
      if (side > 1) sides.push_back(side);
    }
    const int64_t longest = *std::max_element(sides.begin(), sides.end());
    for (const int64_t side : sides) {
      pieces.push_back(is_aligned ? (2 * longest + side) / (2 * side) : 1);
      finest = std::lcm(finest, pieces.back());
      phase_steps = std::max(phase_steps, (side - 1) * pieces.back());
    }
    if (!is_aligned) phase_steps = 0;
  }

  // What each copy puts on its side in each of its steps, in chunks, added up over copies: (step, side).
  std::vector<std::vector<int64_t>> loads(int64_t num_ranks) const {
    std::vector<std::vector<int64_t>> found;
    for (size_t first = 0; first < sides.size(); ++first) {
      int64_t chunks = num_ranks * finest;
      size_t begin = 0;
      for (size_t k = 0; k < sides.size(); ++k) {
        const size_t side = (first + sides.size() - k) % sides.size();
        const auto num_steps = static_cast<size_t>((sides[side] - 1) * pieces[side]);
        chunks /= sides[side];
        if (found.size() < begin + num_steps) found.resize(begin + num_steps, std::vector<int64_t>(sides.size(), 0));
        for (size_t step = begin; step < begin + num_steps; ++step) found[step][side] += chunks / pieces[side];
        begin += phase_steps > 0 ? static_cast<size_t>(phase_steps) : num_steps;
      }
    }
    return found;
  }

  std::vector<int64_t> sides, pieces;
  int64_t finest = 1, phase_steps = 0;
};

// num_ways: directions in which copies go round the rings.
SimTime torus_pass(const CollectiveCase& given, bool is_aligned, int64_t num_ways) {
  const Torus torus(given, is_aligned);
  const int64_t num_chunks = num_ways * static_cast<int64_t>(torus.sides.size()) * torus.finest * given.num_ranks;
  const int64_t chunk = divide_up(given.num_bytes, num_chunks);
  SimTime total;
  for (const std::vector<int64_t>& loads : torus.loads(given.num_ranks)) {
    total += message(given, chunk * *std::max_element(loads.begin(), loads.end()));
  }
  return total;
}

SimTime torus_half(const CollectiveCase& given) { return torus_pass(given, false, 2); }
SimTime torus_all_reduce(const CollectiveCase& given) { return times(2, torus_half(given)); }
SimTime torus_aligned_half(const CollectiveCase& given) { return torus_pass(given, true, 2); }
SimTime torus_aligned_all_reduce(const CollectiveCase& given) { return times(2, torus_aligned_half(given)); }
SimTime torus_2d_unidirectional_all_reduce(const CollectiveCase& given) {
  return times(2, torus_pass(given, false, 1));
}

SimTime chain(const CollectiveCase& given) {
  const int64_t piece = divide_up(given.num_bytes, given.num_pieces);
  const SimTime on_link = transmit_time(static_cast<double>(piece), given.bytes_per_s);
  return times(given.num_ranks - 1, message(given, piece)) + times(given.num_pieces - 1, on_link);
}

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

void check_grid(const std::string& name, const CollectiveCase& given) {
  int64_t count = given.grid.empty() ? 0 : 1;
  std::string sides;
  for (const int32_t side : given.grid) {
    count = side < 1 || count > given.num_ranks ? int64_t{given.num_ranks} + 1 : count * side;
    sides += (sides.empty() ? "" : " x ") + std::to_string(side);
  }
  if (count == given.num_ranks) return;
  ROSTAM_THROW(ConfigError, name << " over " << given.num_ranks << " ranks on "
                                 << (sides.empty() ? "no grid" : "a grid of " + sides)
                                 << "; the grid must hold the ranks");
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
    {"all_reduce", "torus_2d", &torus_all_reduce, true},
    {"all_reduce", "torus_2d_unidirectional", &torus_2d_unidirectional_all_reduce, true},
    {"all_reduce", "torus_nd", &torus_all_reduce, true},
    {"all_reduce", "torus_nd_aligned", &torus_aligned_all_reduce, true},
    {"reduce_scatter", "ring", &ring_pass},
    {"reduce_scatter", "dual_hamiltonian_rings", &dual_rings_pass},
    {"reduce_scatter", "torus_nd", &torus_half, true},
    {"reduce_scatter", "torus_nd_aligned", &torus_aligned_half, true},
    {"all_gather", "ring", &ring_pass},
    {"all_gather", "dual_hamiltonian_rings", &dual_rings_pass},
    {"all_gather", "torus_nd", &torus_half, true},
    {"all_gather", "torus_nd_aligned", &torus_aligned_half, true},
    {"all_to_all", "direct", &direct_all_to_all},
    {"broadcast", "ring", &chain},
    {"broadcast", "binomial_tree", &binomial_tree_broadcast},
    {"reduce", "ring", &chain},
    {"reduce", "binomial_tree", &binomial_tree_broadcast},
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
  if (given.num_pieces < 1) ROSTAM_THROW(ConfigError, "num_pieces is " << given.num_pieces << "; it must be >= 1");
  for (const Entry& entry : kEntries) {
    if (collective != entry.collective || algorithm != entry.algorithm) continue;
    if (given.num_ranks == 1) return SimTime::zero();
    if (entry.needs_grid) check_grid(collective + "/" + algorithm, given);
    return entry.time(given);
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
