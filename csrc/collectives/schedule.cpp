#include "collectives/schedule.h"

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

void check_grid(const std::string& collective, const std::string& algorithm, int32_t num_ranks, const Grid& grid) {
  const bool has_grid = grid.rows != 0 || grid.columns != 0;
  if (!has_grid) {
    ROSTAM_THROW(ConfigError, collective << " by " << algorithm << " over " << num_ranks
                                         << " ranks needs a 2D grid; give its rows and columns");
  }
  if (grid.rows < 1 || grid.columns < 1 || int64_t{grid.rows} * grid.columns != num_ranks) {
    ROSTAM_THROW(ConfigError, "a grid of " << grid.rows << " x " << grid.columns << " for " << num_ranks
                                           << " ranks; both must be >= 1 and their product the number of ranks");
  }
}

}  // namespace

std::unique_ptr<Schedule> make_schedule(const std::string& collective, const std::string& algorithm, int32_t num_ranks,
                                        Layout layout) {
  if (num_ranks < 1) ROSTAM_THROW(ConfigError, collective << " over " << num_ranks << " ranks; at least 1 is needed");
  if (num_ranks == 1 && layout.grid.rows == 0 && layout.grid.columns == 0) layout.grid = {1, 1};
  if (layout.num_pieces < 1) {
    ROSTAM_THROW(ConfigError,
                 collective << " by " << algorithm << " in " << layout.num_pieces << " pieces; it needs at least 1");
  }
#define X(known_collective, known_algorithm)                               \
  if (collective == #known_collective && algorithm == #known_algorithm) {  \
    return make_##known_collective##_##known_algorithm(num_ranks, layout); \
  }
#define X_GRID(known_collective, known_algorithm)                          \
  if (collective == #known_collective && algorithm == #known_algorithm) {  \
    check_grid(collective, algorithm, num_ranks, layout.grid);             \
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
