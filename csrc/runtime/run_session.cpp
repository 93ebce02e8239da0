// The way into sessions: checks options, folds, runs, unfolds, and checks what only the whole system shows.
#include <utility>

#include "runtime/session.h"

namespace rostam::runtime {

namespace {

void check_options(const workload::TaskGraph& graph, const routing::RouteTable& routes, const SessionOptions& options) {
  if (!graph.is_frozen) throw ConfigError("the task graph must be frozen before a session takes it");
  if (!(options.comm_compute_fraction >= 0 && options.comm_compute_fraction < 1)) {
    ROSTAM_THROW(ConfigError, "comm_compute_fraction is " << options.comm_compute_fraction << "; it must be in [0, 1)");
  }
  if (options.min_iterations < 1 || options.max_iterations < options.min_iterations) {
    ROSTAM_THROW(ConfigError, "iterations " << options.min_iterations << " to " << options.max_iterations
                                            << "; both must be >= 1 and in order");
  }
  const auto num_links = static_cast<int32_t>(routes.links().capacities.size());
  for (const folding::LinkEvent& event : options.events) {
    if (event.link < 0 || event.link >= num_links || !(event.bytes_per_s >= 0) || event.time < SimTime::zero()) {
      ROSTAM_THROW(ConfigError, "event at " << event.time.seconds() << " s sets link " << event.link << " to "
                                            << event.bytes_per_s << " bytes/s; links are 0 to " << num_links - 1);
    }
  }
  const auto num_devices = static_cast<int32_t>(graph.devices.size());
  for (const int32_t device : options.timeline_devices) {
    if (device >= 0 && device < num_devices) continue;
    ROSTAM_THROW(ConfigError, "the timeline names device " << device << "; devices are 0 to " << num_devices - 1);
  }
  const int32_t num_accelerators = routes.num_accelerators();
  for (int32_t d = 0; d < num_devices; ++d) {
    if (graph.devices[d].accelerator < num_accelerators) continue;
    ROSTAM_THROW(ConfigError, "device " << d << " is accelerator " << graph.devices[d].accelerator
                                        << "; the fabric has 0 to " << num_accelerators - 1);
  }
}

// MODEL K29, over the whole run on one plane.
void check_accelerators(const workload::TaskGraph& graph, const routing::RouteTable& routes,
                        const SessionResult& result) {
  const auto num_accelerators = static_cast<size_t>(routes.num_accelerators());
  std::vector<double> sent(num_accelerators), received(num_accelerators);
  for (size_t d = 0; d < graph.devices.size(); ++d) {
    sent[graph.devices[d].accelerator] += result.wire_sent_bytes[d];
    received[graph.devices[d].accelerator] += result.wire_received_bytes[d];
  }
  routing::EndPoints(routes).check_bytes(result.total_link_bytes, sent, received);
}

}  // namespace

SessionResult run_session(std::shared_ptr<const workload::TaskGraph> graph, const routing::RouteTable& routes,
                          const SessionOptions& options) {
  check_options(*graph, routes, options);
  const network::EngineTraits traits = network::engine_traits(options.fidelity);
  const bool folds = options.enable_folding && traits.can_fold;
  const WeightedSystem system = folds ? folding::fold(graph, routes, options.events) : folding::unfolded(graph, routes);
  SessionResult result = folding::expand(system, Session(system, routes, options).run(), options.timeline_devices);
  check_accelerators(*graph, routes, result);
  result.checks = {"bytes sent = bytes received", "collective bytes = closed form",
                   "routes join the ends of their messages",
                   "links of every accelerator carry what it sends, receives and forwards"};
  if (traits.checks_capacity) result.checks.emplace_back("no link above capacity");
  return result;
}

}  // namespace rostam::runtime
