#include "collectives/schedule.h"

#include <algorithm>
#include <limits>

#include "sim/errors.h"

namespace rostam::collectives {

#define X(collective, algorithm) std::unique_ptr<Schedule> make_##collective##_##algorithm(int32_t, const Layout&);
#include "collectives/builtin.inc"
#undef X

std::vector<std::pair<std::string, std::string>> schedule_names() {
  return {
#define X(collective, algorithm) {#collective, #algorithm},
#include "collectives/builtin.inc"
#undef X
  };
}

bool needs_grid(const std::string& collective, const std::string& algorithm) {
#define X(known_collective, known_algorithm)
#define X_GRID(known_collective, known_algorithm) \
  if (collective == #known_collective && algorithm == #known_algorithm) return true;
#include "collectives/builtin.inc"
#undef X
  return false;
}

bool needs_2d_grid(const std::string& collective, const std::string& algorithm) {
#define X(known_collective, known_algorithm)
#define X_GRID_2D(known_collective, known_algorithm) \
  if (collective == #known_collective && algorithm == #known_algorithm) return true;
#include "collectives/builtin.inc"
#undef X
  return false;
}

bool uses_servers(const std::string& collective, const std::string& algorithm) {
#define X(known_collective, known_algorithm)
#define X_SERVERS(known_collective, known_algorithm) \
  if (collective == #known_collective && algorithm == #known_algorithm) return true;
#include "collectives/builtin.inc"
#undef X
  return false;
}

bool models_bandwidth(const std::string& collective, const std::string& algorithm) {
#define X(known_collective, known_algorithm)
#define X_MODEL(known_collective, known_algorithm) \
  if (collective == #known_collective && algorithm == #known_algorithm) return true;
#include "collectives/builtin.inc"
#undef X
  return false;
}

bool reduces_in_switches(const std::string& collective, const std::string& algorithm) {
#define X(known_collective, known_algorithm)
#define X_SWITCH(known_collective, known_algorithm) \
  if (collective == #known_collective && algorithm == #known_algorithm) return true;
#include "collectives/builtin.inc"
#undef X
  return false;
}

bool works_in_pieces(const std::string& collective, const std::string& algorithm) {
#define X(known_collective, known_algorithm)
#define X_PIECES(known_collective, known_algorithm) \
  if (collective == #known_collective && algorithm == #known_algorithm) return true;
#include "collectives/builtin.inc"
#undef X
  return false;
}

bool is_by_name_only(const std::string& collective, const std::string& algorithm) {
#define X(known_collective, known_algorithm)
#define X_NAMED(known_collective, known_algorithm) \
  if (collective == #known_collective && algorithm == #known_algorithm) return true;
#define X_NAMED_GRID X_NAMED
#include "collectives/builtin.inc"
#undef X
  return false;
}

bool is_pipelined(const std::string& collective, const std::string& algorithm) {
#define X(known_collective, known_algorithm)
#define X_PIPELINE(known_collective, known_algorithm) \
  if (collective == #known_collective && algorithm == #known_algorithm) return true;
#define X_CHAIN X_PIPELINE
#define X_TREES X_PIPELINE
#include "collectives/builtin.inc"
#undef X
  return false;
}

bool takes_direct_links(const std::string& collective, const std::string& algorithm) {
#define X(known_collective, known_algorithm)
#define X_LINKS(known_collective, known_algorithm) \
  if (collective == #known_collective && algorithm == #known_algorithm) return true;
#define X_LINK_PIECES X_LINKS
#include "collectives/builtin.inc"
#undef X
  return false;
}

bool takes_trees(const std::string& collective, const std::string& algorithm) {
#define X(known_collective, known_algorithm)
#define X_TREES(known_collective, known_algorithm) \
  if (collective == #known_collective && algorithm == #known_algorithm) return true;
#include "collectives/builtin.inc"
#undef X
  return false;
}

void Schedule::messages(int32_t rank, int32_t step, std::vector<Transfer>& out) const {
  const size_t first = out.size();
  sends(rank, step, out);
  if (out.size() < first + 2) return;
  size_t last = first;
  for (size_t k = first; k < out.size(); ++k) {
    if (out[k].joins_last) {
      out[last - 1].num_chunks += out[k].num_chunks;
    } else {
      out[last++] = out[k];
    }
  }
  out.resize(last);
}

namespace {

std::string text_of(const Sides& grid) {
  std::string text;
  for (const int32_t side : grid) text += (text.empty() ? "" : " x ") + std::to_string(side);
  return text;
}

void check_grid(const std::string& collective, const std::string& algorithm, int32_t num_ranks, const Sides& grid) {
  if (grid.empty()) {
    const char* what =
        needs_2d_grid(collective, algorithm) ? "a 2D grid; give its rows and columns" : "a grid; give its sides";
    ROSTAM_THROW(ConfigError, collective << " by " << algorithm << " over " << num_ranks << " ranks needs " << what);
  }
  int64_t product = 1;
  for (const int32_t side : grid) product = side < 1 || product > num_ranks ? int64_t{num_ranks} + 1 : product * side;
  if (product != num_ranks) {
    ROSTAM_THROW(ConfigError, "a grid of " << text_of(grid) << " for " << num_ranks
                                           << " ranks; sides must be >= 1 and their product the number of ranks");
  }
}

// The same grid with two sides: without sides of 1, or with one more.
Sides two_sides(const std::string& collective, const std::string& algorithm, const Sides& grid) {
  if (grid.size() == 2) return grid;
  Sides sides;
  for (const int32_t side : grid) {
    if (side > 1) sides.push_back(side);
  }
  while (sides.size() < 2) sides.insert(sides.begin(), 1);
  if (sides.size() > 2) {
    ROSTAM_THROW(ConfigError, collective << " by " << algorithm << " needs a 2D grid, and that of " << text_of(grid)
                                         << " has " << sides.size() << " sides above 1");
  }
  return sides;
}

// Only messages that all start at once are as large as each pair of ranks likes.
void check_parts(const std::string& collective, const std::string& algorithm, int32_t num_ranks,
                 const std::vector<std::vector<int32_t>>& parts) {
  if (collective != "all_to_all" || algorithm != "direct") {
    ROSTAM_THROW(ConfigError,
                 collective << " by " << algorithm << " has no unequal parts; all_to_all by direct has them alone");
  }
  bool is_square = parts.size() == static_cast<size_t>(num_ranks);
  int64_t most = 0;
  for (const std::vector<int32_t>& row : parts) {
    is_square = is_square && row.size() == static_cast<size_t>(num_ranks);
    int64_t sum = 0;
    for (const int32_t part : row) {
      if (part < 0) ROSTAM_THROW(ConfigError, "an all_to_all has a part of " << part << " chunks; it must be >= 0");
      sum += part;
    }
    most = std::max(most, sum);
  }
  if (!is_square || most < 1 || most > std::numeric_limits<int32_t>::max()) {
    ROSTAM_THROW(ConfigError, "the parts of an all_to_all over "
                                  << num_ranks << " ranks are " << parts.size() << " rows, of which the largest has "
                                  << most << " chunks; as many rows as ranks are needed, of as many numbers, with 1 to "
                                  << "2^31 - 1 chunks in the largest");
  }
}

}  // namespace

std::unique_ptr<Schedule> make_schedule(const std::string& collective, const std::string& algorithm, int32_t num_ranks,
                                        Layout layout) {
  if (num_ranks < 1) ROSTAM_THROW(ConfigError, collective << " over " << num_ranks << " ranks; at least 1 is needed");
  if (num_ranks == 1 && layout.grid.empty()) layout.grid = {1};
  if (layout.num_pieces < 1) {
    ROSTAM_THROW(ConfigError,
                 collective << " by " << algorithm << " in " << layout.num_pieces << " pieces; it needs at least 1");
  }
  if (!layout.parts.empty()) check_parts(collective, algorithm, num_ranks, layout.parts);
#define X(known_collective, known_algorithm)                               \
  if (collective == #known_collective && algorithm == #known_algorithm) {  \
    return make_##known_collective##_##known_algorithm(num_ranks, layout); \
  }
#define X_GRID(known_collective, known_algorithm)                          \
  if (collective == #known_collective && algorithm == #known_algorithm) {  \
    check_grid(collective, algorithm, num_ranks, layout.grid);             \
    return make_##known_collective##_##known_algorithm(num_ranks, layout); \
  }
#define X_GRID_2D(known_collective, known_algorithm)                       \
  if (collective == #known_collective && algorithm == #known_algorithm) {  \
    check_grid(collective, algorithm, num_ranks, layout.grid);             \
    layout.grid = two_sides(collective, algorithm, layout.grid);           \
    return make_##known_collective##_##known_algorithm(num_ranks, layout); \
  }
#include "collectives/builtin.inc"
#undef X
  std::string known;
  for (const auto& [name, way] : schedule_names()) {
    if (name == collective) known += (known.empty() ? "" : ", ") + way;
  }
  if (known.empty()) {
    for (const auto& [name, way] : schedule_names()) known += (known.empty() ? "" : ", ") + name + "/" + way;
    ROSTAM_THROW(ConfigError, "unknown collective '" << collective << "'; known (collective/algorithm): " << known);
  }
  ROSTAM_THROW(ConfigError, "unknown algorithm '" << algorithm << "' for " << collective << "; known: " << known);
}

}  // namespace rostam::collectives
