// The way into sessions: checks options, folds, runs, unfolds, and checks what only the whole system shows.
#include <algorithm>
#include <utility>

#include "folding/folding.h"
#include "runtime/session.h"

namespace rostam::runtime {

namespace {

void check_options(const workload::TaskGraph& graph, const routing::RouteTable& routes, const SessionOptions& options) {
  if (!graph.is_frozen) throw ConfigError("the task graph must be frozen before a session takes it");
  if (!(options.comm_compute_fraction >= 0 && options.comm_compute_fraction < 1)) {
    ROSTAM_THROW(ConfigError, "comm_compute_fraction is " << options.comm_compute_fraction << "; it must be in [0, 1)");
  }
  if (options.host_launch < SimTime::zero()) {
    ROSTAM_THROW(ConfigError, "host_launch is " << options.host_launch.ps() << " ps; it must be >= 0");
  }
  if (options.min_iterations < 1 || options.max_iterations < options.min_iterations) {
    ROSTAM_THROW(ConfigError, "iterations " << options.min_iterations << " to " << options.max_iterations
                                            << "; both must be >= 1 and in order");
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

// MODEL K29, over the whole run on one plane; what it forwards is kept.
void check_accelerators(const workload::TaskGraph& graph, const routing::RouteTable& routes,
                        const routing::EndPoints& end_points, SessionResult& result) {
  const auto num_accelerators = static_cast<size_t>(routes.num_accelerators());
  std::vector<double> sent(num_accelerators), received(num_accelerators);
  for (size_t d = 0; d < graph.devices.size(); ++d) {
    sent[graph.devices[d].accelerator] += result.wire_sent_bytes[d];
    received[graph.devices[d].accelerator] += result.wire_received_bytes[d];
  }
  for (const SessionResult::Elsewhere& one : result.wire_elsewhere) {
    sent[one.accelerator] += one.sent_bytes;
    received[one.accelerator] += one.received_bytes;
  }
  end_points.check_bytes(result.total_link_bytes, sent, received, result.strays);
  result.forwarded_bytes = end_points.forwarded_bytes(result.total_link_bytes, sent);
}

}  // namespace

SessionResult run_session(std::shared_ptr<const workload::TaskGraph> graph, const routing::RouteTable& given,
                          const SessionOptions& options, Controllers& controllers) {
  check_options(*graph, given, options);
  routing::RouteTable routes = given;  // controllers change it
  routes.set_missing(options.enable_parking ? routing::MissingRoute::kPark : routing::MissingRoute::kThrow);
  const folding::Footprint footprint = footprint_of(controllers, routes);
  check_footprint(footprint, routes);
  const network::EngineTraits traits = network::engine_traits(options.fidelity);
  if (footprint.reads_messages && (!traits.tells_shares || routes.is_adaptive() || routes.planes().size() > 1)) {
    ROSTAM_THROW(ConfigError,
                 "controllers holds one that reads which links messages take, such as iteration_shift; it "
                 "takes fidelity=flow, a routing that is not adaptive and planes that are alike");
  }
  // Where planes differ routes follow the links' capacities.
  const bool has_fixed_routes = !options.enable_parking && (footprint.links.empty() || routes.planes().size() == 1);
  const bool is_alike = options.kernel_variation.is_none();
  const bool folds = options.enable_folding && traits.can_fold && has_fixed_routes && is_alike &&
                     !footprint.chooses_paths && !footprint.reads_messages;
  WeightedSystem system = folds ? folding::fold(graph, routes, footprint) : folding::unfolded(graph, routes);
  if (traits.walks_packets) system.links = network::link_table(options.fidelity, routes, footprint.touches_links());
  routing::EndPoints end_points(routes);
  SessionResult simulated = Session(system, routes, options, controllers, end_points).run();
  SessionResult result = folding::expand(system, std::move(simulated), options.timeline_devices);
  check_accelerators(*graph, routes, end_points, result);
  const bool has_restarts = std::any_of(result.jobs.begin(), result.jobs.end(),
                                        [](const workload::JobResult& job) { return !job.restarts.empty(); });
  result.checks = {has_restarts ? "bytes sent = bytes received + bytes lost" : "bytes sent = bytes received",
                   "collective bytes = closed form", "routes join the ends of their messages",
                   "links of every accelerator carry what it sends, receives and forwards"};
  if (traits.checks_capacity) result.checks.emplace_back("no link above capacity");
  return result;
}

}  // namespace rostam::runtime
