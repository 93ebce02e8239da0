#include "collectives/schedule.h"

#include "sim/errors.h"

namespace rostam::collectives {

#define X(collective, algorithm) std::unique_ptr<Schedule> make_##collective##_##algorithm(int32_t, int32_t);
#include "collectives/builtin.inc"
#undef X

std::vector<std::pair<std::string, std::string>> schedule_names() {
  return {
#define X(collective, algorithm) {#collective, #algorithm},
#include "collectives/builtin.inc"
#undef X
  };
}

std::unique_ptr<Schedule> make_schedule(const std::string& collective, const std::string& algorithm, int32_t num_ranks,
                                        int32_t group_size) {
  if (num_ranks < 1) ROSTAM_THROW(ConfigError, collective << " over " << num_ranks << " ranks; at least 1 is needed");
#define X(known_collective, known_algorithm)                                   \
  if (collective == #known_collective && algorithm == #known_algorithm) {      \
    return make_##known_collective##_##known_algorithm(num_ranks, group_size); \
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
