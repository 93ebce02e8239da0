// How controllers of circuits read their parameters.
#include <utility>

#include "control/circuit_switching.h"
#include "sim/errors.h"

namespace rostam::control {

const std::vector<std::string> kSwitchingKeys = {"num_accelerators",
                                                 "src",
                                                 "dst",
                                                 "link",
                                                 "iteration_bytes",
                                                 "initial_pair",
                                                 "initial_channel",
                                                 "known_ps",
                                                 "known_pair",
                                                 "known_bytes",
                                                 "mode",
                                                 "estimator",
                                                 "period_ps",
                                                 "delay_ps",
                                                 "reporting_delay_ps",
                                                 "circuit_bytes_per_s",
                                                 "relay",
                                                 "circuit_latency_ps",
                                                 "pair_latency_ps",
                                                 "rail_size",
                                                 "record",
                                                 "clock",
                                                 "part_kind",
                                                 "part_id",
                                                 "part_fail_ps",
                                                 "part_repair_ps",
                                                 "reroute_ps",
                                                 "server_size",
                                                 "up",
                                                 "down",
                                                 "network_up",
                                                 "network_down",
                                                 "server_circuit_latency_ps",
                                                 "network_latency_ps",
                                                 "network_bytes_per_s"};

namespace {

constexpr int64_t kNever = -1;  // period_ps where no decision is taken

struct Mode {
  const char* name;
  SwitchingMode value;
  const char* summary;
};
constexpr Mode kModes[] = {
    {"periodic", SwitchingMode::kPeriodic, "set every period for what the estimator says"},
    {"scheduled", SwitchingMode::kScheduled,
     "set for each phase of the known iteration, as soon as the one before is through"},
};

SwitchingMode mode_of(const ControllerParams& params) {
  std::string known;
  for (const Mode& mode : kModes) {
    if (params.text("mode") == mode.name) return mode.value;
    known += (known.empty() ? "" : ", ") + std::string(mode.name);
  }
  ROSTAM_THROW(ConfigError, "controller " << params.controller() << ": mode is '" << params.text("mode")
                                          << "'; there are " << known);
}

std::vector<int32_t> ids(const ControllerParams& params, const std::string& key, int64_t end) {
  std::vector<int32_t> found;
  for (const int64_t id : params.integers(key)) {
    if (id < 0 || id >= end) {
      ROSTAM_THROW(ConfigError, "controller " << params.controller() << ": " << key << " holds " << id
                                              << "; it must be 0 to " << end - 1);
    }
    found.push_back(static_cast<int32_t>(id));
  }
  return found;
}

void check_size(const ControllerParams& params, const std::string& key, size_t size, size_t wanted) {
  if (size == wanted) return;
  ROSTAM_THROW(ConfigError,
               "controller " << params.controller() << ": " << key << " has " << size << " entries, not " << wanted);
}

SimTime time_of(const ControllerParams& params, const std::string& key) {
  const int64_t ps = params.integer(key);
  if (ps < 0) ROSTAM_THROW(ConfigError, "controller " << params.controller() << ": " << key << " is " << ps << " < 0");
  return SimTime::from_ps(ps);
}

std::vector<OpticalFailure> failures_of(const ControllerParams& params) {
  if (!params.has("part_kind")) return {};
  constexpr auto kNumKinds = static_cast<int64_t>(circuits::OpticalKind::kMicroRing) + 1;
  const std::vector<int32_t> kinds = ids(params, "part_kind", kNumKinds), parts = ids(params, "part_id", INT32_MAX);
  const std::vector<int64_t> fails = params.integers("part_fail_ps"), repairs = params.integers("part_repair_ps");
  check_size(params, "part_id", parts.size(), kinds.size());
  check_size(params, "part_fail_ps", fails.size(), kinds.size());
  check_size(params, "part_repair_ps", repairs.size(), kinds.size());
  std::vector<OpticalFailure> failures;
  for (size_t k = 0; k < kinds.size(); ++k) {
    if (fails[k] < 0 || (repairs[k] != kNever && repairs[k] <= fails[k])) {
      ROSTAM_THROW(ConfigError, "controller " << params.controller() << ": a part fails at " << fails[k]
                                              << " ps and is repaired at " << repairs[k]
                                              << "; failures are at 0 or later, repairs later than theirs, or -1 for "
                                                 "never");
    }
    const SimTime repair = repairs[k] == kNever ? SimTime::never() : SimTime::from_ps(repairs[k]);
    failures.push_back({{static_cast<circuits::OpticalKind>(kinds[k]), parts[k]}, SimTime::from_ps(fails[k]), repair});
  }
  return failures;
}

SharingServers servers_of(const ControllerParams& params, int64_t num_servers) {
  SharingServers servers;
  if (!params.has("server_size")) return servers;
  servers.size = static_cast<int32_t>(params.integer("server_size"));
  if (servers.size < 1) {
    ROSTAM_THROW(ConfigError, "controller " << params.controller() << ": server_size is " << servers.size << " < 1");
  }
  servers.up = ids(params, "up", INT32_MAX);
  servers.down = ids(params, "down", INT32_MAX);
  servers.network_up = ids(params, "network_up", INT32_MAX);
  servers.network_down = ids(params, "network_down", INT32_MAX);
  servers.circuit_latency = time_of(params, "server_circuit_latency_ps");
  servers.network_latency = time_of(params, "network_latency_ps");
  servers.network_bytes_per_s = params.number("network_bytes_per_s");
  check_size(params, "down", servers.down.size(), servers.up.size());
  check_size(params, "network_up", servers.network_up.size(), static_cast<size_t>(num_servers));
  check_size(params, "network_down", servers.network_down.size(), static_cast<size_t>(num_servers));
  return servers;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> switching_modes() {
  std::vector<std::pair<std::string, std::string>> all;
  for (const Mode& mode : kModes) all.emplace_back(mode.name, mode.summary);
  return all;
}

SwitchedPairs switched_pairs(const ControllerParams& params) {
  SwitchedPairs given;
  const int64_t num_accelerators = params.integer("num_accelerators");
  given.pairs.num_accelerators = static_cast<int32_t>(num_accelerators);
  given.pairs.src = ids(params, "src", num_accelerators);
  given.pairs.dst = ids(params, "dst", num_accelerators);
  const size_t num_pairs = given.pairs.src.size();
  given.links = ids(params, "link", INT32_MAX);
  given.iteration_bytes = params.numbers("iteration_bytes");
  check_size(params, "dst", given.pairs.dst.size(), num_pairs);
  check_size(params, "link", given.links.size(), num_pairs);
  check_size(params, "iteration_bytes", given.iteration_bytes.size(), num_pairs);
  given.servers = servers_of(params, num_accelerators);
  if (params.has("pair_latency_ps")) {
    for (const int64_t ps : params.integers("pair_latency_ps")) given.latency.push_back(SimTime::from_ps(ps));
    check_size(params, "pair_latency_ps", given.latency.size(), num_pairs);
  }
  if (params.has("rail_size")) {
    given.rail_size = static_cast<int32_t>(params.integer("rail_size"));
    if (given.rail_size < 1) {
      ROSTAM_THROW(ConfigError, "controller " << params.controller() << ": rail_size is " << given.rail_size << " < 1");
    }
  }
  const std::vector<int32_t> pairs = ids(params, "initial_pair", static_cast<int64_t>(num_pairs));
  const std::vector<int32_t> channels = ids(params, "initial_channel", INT32_MAX);
  check_size(params, "initial_channel", channels.size(), pairs.size());
  for (size_t c = 0; c < pairs.size(); ++c) given.initial.push_back({pairs[c], channels[c]});
  if (params.has("known_ps")) {
    const std::vector<int64_t> times = params.integers("known_ps");
    const std::vector<int32_t> of = ids(params, "known_pair", static_cast<int64_t>(num_pairs));
    const std::vector<double> bytes = params.numbers("known_bytes");
    check_size(params, "known_pair", of.size(), times.size());
    check_size(params, "known_bytes", bytes.size(), times.size());
    int32_t burst = 0;
    for (size_t m = 0; m < times.size(); ++m) {
      burst += m > 0 && times[m] != times[m - 1];
      given.known.push_back({SimTime::from_ps(times[m]), of[m], burst, bytes[m], SimTime::zero()});
    }
  }
  return given;
}

SwitchingOptions switching_options(const ControllerParams& params) {
  SwitchingOptions options;
  options.mode = mode_of(params);
  options.estimator = estimator_of(params.text("estimator"));
  options.period = params.integer("period_ps") == kNever ? SimTime::never() : time_of(params, "period_ps");
  options.delay = time_of(params, "delay_ps");
  options.reporting_delay = time_of(params, "reporting_delay_ps");
  options.circuit_bytes_per_s = params.number("circuit_bytes_per_s");
  options.enable_relay = params.has("relay") && params.integer("relay") != 0;
  options.circuit_latency = time_of(params, "circuit_latency_ps");
  options.failures = failures_of(params);
  if (params.has("reroute_ps")) options.reroute = time_of(params, "reroute_ps");
  options.is_recorded = params.has("record") && params.integer("record") != 0;
  options.is_clocked = params.has("clock") && params.integer("clock") != 0;
  return options;
}

}  // namespace rostam::control
