#include "runtime/flow_run.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <sstream>
#include <utility>

#include "folding/memory.h"
#include "sim/interrupt.h"
#include "sim/random.h"

namespace rostam::runtime {

FlowRun::FlowRun(const routing::RouteTable& routes, int32_t num_accelerators, const std::vector<FlowSpec>& flows,
                 Controllers controllers, std::vector<RerouteEvent> reroutes, const FlowOptions& options)
    : routes_(routes),
      num_links_(routes.links().capacities.size()),
      detail_(network::engine_traits(options.fidelity).walks_packets ? routing::Detail::kPackets
                                                                     : routing::Detail::kShares),
      controllers_(std::move(controllers)),
      reroutes_(std::move(reroutes)),
      end_points_(routes_),
      events_(*this, &FlowRun::on_event),
      carrier_(options.fidelity,
               network::link_table(options.fidelity, routes_, footprint_of(controllers_, routes_).touches_links()),
               routes_, queue_, std::vector<int64_t>(routes_.num_accelerators(), 1), *this),
      control_(controllers_, queue_, *this, carrier_, routes_, end_points_) {
  if (routes_.reads_backlog()) routes_.read_backlog(&carrier_.network());
  if (options.tolerance != 0) carrier_.network().set_tolerance(options.tolerance);
  carrier_.network().set_packets(options.packets);
  routes_.set_missing(options.enable_parking ? routing::MissingRoute::kPark : routing::MissingRoute::kThrow);
  result_.sent_ps.assign(flows.size(), -1);
  result_.delivered_ps.assign(flows.size(), -1);
  result_.bytes_left.assign(flows.size(), 0);
  flows_.reserve(flows.size());
  num_left_ = flows.size();
  for (const FlowSpec& spec : flows) add_flow(spec, num_accelerators, options.seed);
  const auto num_flows = static_cast<int32_t>(flows.size());
  for (const RerouteEvent& reroute : reroutes_) {
    if (reroute.flow >= 0 && reroute.flow < num_flows) continue;
    ROSTAM_THROW(ConfigError, "a reroute names flow " << reroute.flow << "; flows are 0 to " << num_flows - 1);
  }
  check_footprint(footprint_of(controllers_, routes_), routes_);
  check_memory(flows);
  control_.begin();
  for (size_t e = 0; e < reroutes_.size(); ++e) schedule(reroutes_[e].time, Kind::kReroute, e);
  for (size_t f = 0; f < flows.size(); ++f) {
    schedule(flows[f].start, Kind::kStart, f);
    if (flows[f].stop < SimTime::never()) schedule(flows[f].stop, Kind::kStop, f);
  }
}

void FlowRun::add_flow(const FlowSpec& spec, int32_t num_accelerators, uint64_t seed) {
  const bool is_pair = spec.src >= 0 && spec.src < num_accelerators && spec.dst >= 0 && spec.dst < num_accelerators &&
                       spec.src != spec.dst;
  if (!is_pair || spec.bytes < 0 || spec.start < SimTime::zero() || spec.stop < spec.start || !(spec.rate_cap > 0)) {
    ROSTAM_THROW(ConfigError, "flow " << flows_.size() << " goes from " << spec.src << " to " << spec.dst << " with "
                                      << spec.bytes << " bytes from " << spec.start.seconds()
                                      << " s; ends must differ and lie in 0 to " << num_accelerators - 1
                                      << ", bytes and start must be >= 0, stop >= start, the rate cap > 0");
  }
  Flow flow;
  flow.source = spec.src;
  flow.target = spec.dst;
  flow.bytes = flow.wire_bytes = spec.bytes;
  flow.rate_cap = spec.rate_cap / routes_.num_alike();
  flow.hash = mix(seed + flows_.size());
  flows_.push_back(flow);
}

// Of the flows that start at the same instant those of the instant with the most are under way at once.
void FlowRun::check_memory(const std::vector<FlowSpec>& flows) const {
  std::vector<size_t> order(flows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return flows[a].start < flows[b].start; });
  size_t first = 0, end = 0;
  for (size_t from = 0, to = 0; from < order.size(); from = to) {
    while (to < order.size() && flows[order[to]].start == flows[order[from]].start) ++to;
    if (to - from <= end - first) continue;
    first = from;
    end = to;
  }
  std::vector<routing::Channel> together;
  together.reserve(end - first);
  for (size_t k = first; k < end; ++k) {
    const Flow& flow = flows_[order[k]];
    together.push_back({flow.source, flow.target, flow.hash});
  }
  folding::check_memory(together, routes_);
}

void FlowRun::schedule(SimTime time, Kind kind, size_t index) {
  queue_.schedule(time, Priority::kNormal, &events_, static_cast<uint64_t>(kind) << 60 | index);
}

void FlowRun::on_event(uint64_t payload) {
  const size_t index = payload & ((uint64_t{1} << 60) - 1);
  switch (static_cast<Kind>(payload >> 60)) {
    case Kind::kStart:
      return carrier_.send(static_cast<int32_t>(index), flows_[index], route_of(static_cast<int32_t>(index)));
    case Kind::kStop:
      return stop(static_cast<int32_t>(index));
    case Kind::kReroute:
      flows_[reroutes_[index].flow].hash = reroutes_[index].hash;  // holds for a flow that starts later, too
      return carrier_.move(reroutes_[index].flow);
  }
}

network::RouteId FlowRun::route_of(int32_t number) {
  const Flow& flow = flows_[number];
  const std::optional<routing::Route> route =
      routes_.route_of({flow.source, flow.target, flow.hash}, detail_, flow.bytes);
  if (!route.has_value()) return network::kNoRoute;
  end_points_.check_route(*route, flow.source, flow.target);
  return carrier_.network().add_route(*route, static_cast<uint64_t>(number));
}

network::RouteId FlowRun::add_route(int32_t number, const routing::Route& route) {
  return carrier_.network().add_route(route, static_cast<uint64_t>(number));
}

std::string FlowRun::describe(int32_t flow) const {
  std::ostringstream text;
  text << "flow " << flow << " from " << flows_[flow].source << " to " << flows_[flow].target;
  return text.str();
}

void FlowRun::stop(int32_t number) {
  const Flow& flow = flows_[number];
  if (flow.state == ParcelState::kSending) {
    result_.bytes_left[number] = carrier_.backlog(flow) * routes_.num_alike();
  } else if (flow.state == ParcelState::kWaiting) {
    result_.bytes_left[number] = static_cast<double>(flow.bytes);
  } else {
    return;
  }
  carrier_.cut(number);
  --num_left_;
}

void FlowRun::throw_no_jobs() {
  throw ConfigError("a controller asks for a job; run_flows has flows, but no jobs: use simulate or run_collective");
}

FlowRunResult FlowRun::run() {
  // What controllers would do later is no part of it.
  InterruptPoll poll;
  while (num_left_ > 0 && !queue_.is_empty()) {
    queue_.run_next();
    poll();
  }
  check_all_arrived();
  network::NetworkStats stats = carrier_.network().stats();
  // MODEL K29, with what was sent of flows that were cut off.
  end_points_.check_bytes(stats.link_bytes, carrier_.wire().sent(), carrier_.wire().received(),
                          carrier_.network().strays());
  result_.forwarded_bytes = end_points_.forwarded_bytes(stats.link_bytes, carrier_.wire().sent());
  result_.checks = {"routes join the ends of their flows",
                    "links of every accelerator carry what it sends, receives and forwards"};
  if (std::string note = carrier_.network().note(); !note.empty()) result_.notes.push_back(std::move(note));
  result_.reports = control_.report();
  result_.link_bytes = std::move(stats.link_bytes);
  result_.link_bytes.resize(num_links_);
  result_.num_solves = stats.num_solves;
  return std::move(result_);
}

void FlowRun::check_all_arrived() {
  carrier_.throw_if_stuck();
  const auto is_stalled = [](const Flow& flow) {
    return flow.state == ParcelState::kSending || flow.state == ParcelState::kSent;
  };
  for (size_t f = 0; f < flows_.size(); ++f) {
    if (!is_stalled(flows_[f])) continue;
    const std::string circle = carrier_.network().describe_stall();
    if (!circle.empty()) throw DeadlockError(circle);
    ROSTAM_THROW(DeadlockError, std::count_if(flows_.begin(), flows_.end(), is_stalled)
                                    << " flows are stalled on links of capacity 0; the first is flow " << f << ", "
                                    << flows_[f].source << " to " << flows_[f].target);
  }
}

}  // namespace rostam::runtime
