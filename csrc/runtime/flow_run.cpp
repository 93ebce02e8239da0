#include "runtime/flow_run.h"

#include "sim/random.h"

namespace rostam::runtime {

FlowRun::FlowRun(const routing::RouteTable& routes, int32_t num_accelerators, std::vector<FlowSpec> flows,
                 std::vector<std::unique_ptr<control::Controller>> controllers, std::vector<RerouteEvent> reroutes,
                 uint64_t seed, const std::string& fidelity)
    : routes_(routes),
      num_links_(routes.links().capacities.size()),
      flows_(std::move(flows)),
      controllers_(std::move(controllers)),
      reroutes_(std::move(reroutes)),
      end_points_(routes_),
      events_(*this, &FlowRun::on_event),
      network_(network::make_network(fidelity, queue_, network::LinkTable(routes_.links()), *this)),
      control_(controllers_, queue_, *this, routes_, end_points_),
      ids_(flows_.size(), 0),
      is_active_(flows_.size(), 0),
      is_cut_(flows_.size(), 0),
      carried_(flows_.size(), 0) {
  result_.sent_ps.assign(flows_.size(), -1);
  result_.delivered_ps.assign(flows_.size(), -1);
  result_.bytes_left.assign(flows_.size(), 0);
  const auto num_flows = static_cast<int32_t>(flows_.size());
  for (size_t f = 0; f < flows_.size(); ++f) {
    const FlowSpec& flow = flows_[f];
    const bool is_pair = flow.src >= 0 && flow.src < num_accelerators && flow.dst >= 0 && flow.dst < num_accelerators &&
                         flow.src != flow.dst;
    if (!is_pair || flow.bytes < 0 || flow.start < SimTime::zero() || flow.stop < flow.start || !(flow.rate_cap > 0)) {
      ROSTAM_THROW(ConfigError, "flow " << f << " goes from " << flow.src << " to " << flow.dst << " with "
                                        << flow.bytes << " bytes from " << flow.start.seconds()
                                        << " s; ends must differ and lie in 0 to " << num_accelerators - 1
                                        << ", bytes and start must be >= 0, stop >= start, the rate cap > 0");
    }
  }
  for (size_t f = 0; f < flows_.size(); ++f) hashes_.push_back(mix(seed + f));
  for (const auto& controller : controllers_) {
    for (const folding::Footprint::Link& touched : controller->footprint().links) {
      if (touched.link >= 0 && touched.link < static_cast<int32_t>(num_links_)) continue;
      ROSTAM_THROW(ConfigError, "an event names link " << touched.link << "; links are 0 to " << num_links_ - 1);
    }
  }
  control_.begin();
  for (size_t e = 0; e < reroutes_.size(); ++e) {
    if (reroutes_[e].flow < 0 || reroutes_[e].flow >= num_flows) {
      ROSTAM_THROW(ConfigError, "a reroute names flow " << reroutes_[e].flow << "; flows are 0 to " << num_flows - 1);
    }
    schedule(reroutes_[e].time, Kind::kReroute, e);
  }
  for (size_t f = 0; f < flows_.size(); ++f) {
    schedule(flows_[f].start, Kind::kStart, f);
    if (flows_[f].stop < SimTime::never()) schedule(flows_[f].stop, Kind::kStop, f);
  }
}

void FlowRun::schedule(SimTime time, Kind kind, size_t index) {
  queue_.schedule(time, Priority::kNormal, &events_, static_cast<uint64_t>(kind) << 60 | index);
}

network::RouteId FlowRun::add_route(int32_t flow) {
  const FlowSpec& spec = flows_[flow];
  const routing::Route route = *routes_.route_of({spec.src, spec.dst, hashes_[flow]});
  end_points_.check_route(route, spec.src, spec.dst);
  return network_->add_route(route, static_cast<uint64_t>(flow));
}

void FlowRun::on_event(uint64_t payload) {
  const size_t index = payload & ((uint64_t{1} << 60) - 1);
  switch (static_cast<Kind>(payload >> 60)) {
    case Kind::kStart:
      return start(index);
    case Kind::kStop:
      return stop(index);
    case Kind::kReroute:
      hashes_[reroutes_[index].flow] = reroutes_[index].hash;  // holds for a flow that starts later, too
      return move(static_cast<size_t>(reroutes_[index].flow));
  }
}

void FlowRun::start(size_t flow) {
  const network::RouteId route = add_route(static_cast<int32_t>(flow));
  const int64_t bytes = routes_.wire_bytes(flows_[flow].bytes);
  ids_[flow] = network_->start({route, bytes, flow, flows_[flow].rate_cap / routes_.num_alike()});
  carried_[flow] = static_cast<double>(network_->carried_bytes(route, bytes));
  is_active_[flow] = 1;
  tell(control::kFlowStart, flow);
}

// Onto the route that it has now.
void FlowRun::move(size_t flow) {
  if (!is_active_[flow]) return;
  carried_[flow] -= network_->backlog(ids_[flow]);
  network_->set_route(ids_[flow], add_route(static_cast<int32_t>(flow)));
  carried_[flow] += network_->backlog(ids_[flow]);  // what is left may be split over planes anew, in whole bytes
}

void FlowRun::stop(size_t flow) {
  if (!is_active_[flow]) return;
  is_active_[flow] = 0;
  is_cut_[flow] = 1;
  const double left = network_->backlog(ids_[flow]);
  carried_[flow] -= left;
  result_.bytes_left[flow] = left * routes_.num_alike();
  network_->cancel(ids_[flow]);
  tell(control::kFlowEnd, flow);
}

void FlowRun::on_new_route(int32_t src, int32_t dst) {
  for (size_t f = 0; f < flows_.size(); ++f) {
    if (flows_[f].src == src && flows_[f].dst == dst) move(f);
  }
}

void FlowRun::throw_no_jobs() {
  throw ConfigError("a controller asks for a job; run_flows has flows, but no jobs: use simulate or run_collective");
}

void FlowRun::tell(control::EventKind kind, size_t flow) {
  if (!control_.hears(kind)) return;
  control::Event event;
  event.kind = kind;
  event.src = flows_[flow].src;
  event.dst = flows_[flow].dst;
  event.bytes = flows_[flow].bytes;
  control_.tell(event);
}

void FlowRun::on_sent(uint64_t token) {
  is_active_[token] = 0;
  result_.sent_ps[token] = queue_.now().ps();
  tell(control::kFlowEnd, token);
}

void FlowRun::on_delivered(uint64_t token) { result_.delivered_ps[token] = queue_.now().ps(); }

FlowRunResult FlowRun::run() {
  while (!queue_.is_empty()) queue_.run_next();
  check_all_arrived();
  network::NetworkStats stats = network_->stats();
  result_.link_bytes = std::move(stats.link_bytes);
  result_.num_solves = stats.num_solves;
  check_accelerators();
  result_.link_bytes.resize(num_links_);
  return std::move(result_);
}

void FlowRun::check_all_arrived() const {
  for (size_t f = 0; f < flows_.size(); ++f) {
    if (!is_active_[f] || !network_->is_endless(ids_[f])) continue;
    ROSTAM_THROW(ConfigError, "flow " << f << " from " << flows_[f].src << " to " << flows_[f].dst << " has "
                                      << network_->backlog(ids_[f]) << " bytes left at " << queue_.now().seconds()
                                      << " s and would not be through by the end of simulated time, 106 days; look for "
                                         "a lost unit in a bandwidth or size");
  }
  for (size_t f = 0; f < flows_.size(); ++f) {
    if (result_.delivered_ps[f] >= 0 || is_cut_[f]) continue;
    ROSTAM_THROW(DeadlockError, network_->stats().num_active
                                    << " flows are stalled on links of capacity 0; the first is flow " << f << ", "
                                    << flows_[f].src << " to " << flows_[f].dst);
  }
}

// MODEL K29, with what was sent of flows that were cut off.
void FlowRun::check_accelerators() {
  const auto num_accelerators = static_cast<size_t>(routes_.num_accelerators());
  std::vector<double> sent(num_accelerators), received(num_accelerators);
  for (size_t f = 0; f < flows_.size(); ++f) {
    sent[flows_[f].src] += carried_[f];
    received[flows_[f].dst] += carried_[f];
  }
  end_points_.check_bytes(result_.link_bytes, sent, received);
  result_.checks = {"routes join the ends of their flows",
                    "links of every accelerator carry what it sends, receives and forwards"};
}

}  // namespace rostam::runtime
