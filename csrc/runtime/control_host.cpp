#include "runtime/control_host.h"

#include <utility>

namespace rostam::runtime {

namespace {

// Engine links that messages may take and others not: between switches, and where accelerators forward all of the
// network.
std::vector<folding::Footprint::Link> shared_links(const routing::RouteTable& routes) {
  std::vector<folding::Footprint::Link> found;
  int32_t first = 0;
  for (const routing::PlaneClass& planes : routes.planes()) {
    const fabric::Fabric& fabric = planes.policy->fabric();
    const routing::EngineLinks& links = planes.policy->links();
    const auto is_switch = [&fabric](int32_t vertex) {
      return vertex >= fabric.num_accelerators() && vertex < fabric.num_accelerators() + fabric.num_switches();
    };
    const auto count = static_cast<int32_t>(links.capacities.size());
    for (int32_t link = 0; link < count; ++link) {
      const fabric::Link& member =
          fabric.links()[static_cast<size_t>(links.members[static_cast<size_t>(link)].front())];
      const bool forwards = fabric.can_forward(0) && fabric.class_of(member) == fabric::LinkClass::kNetwork;
      if (forwards || (is_switch(member.src) && is_switch(member.dst))) found.push_back({first + link, 0});
    }
    first += count;
  }
  return found;
}

}  // namespace

folding::Footprint footprint_of(const Controllers& controllers, const routing::RouteTable& routes) {
  folding::Footprint all;
  for (const auto& controller : controllers) {
    const folding::Footprint one = controller->footprint();
    all.is_any = all.is_any || one.is_any;
    all.chooses_paths = all.chooses_paths || one.chooses_paths;
    all.reads_messages = all.reads_messages || one.reads_messages;
    all.links.insert(all.links.end(), one.links.begin(), one.links.end());
  }
  if ((all.chooses_paths || all.reads_messages) && !all.is_any) {
    const std::vector<folding::Footprint::Link> between = shared_links(routes);
    all.links.insert(all.links.end(), between.begin(), between.end());
  }
  return all;
}

bool are_settled(const Controllers& controllers) {
  return std::all_of(controllers.begin(), controllers.end(), [](const auto& one) { return one->is_settled(); });
}

void check_footprint(const folding::Footprint& footprint, const routing::RouteTable& routes) {
  const auto num_links = static_cast<int32_t>(routes.links().capacities.size());
  for (const folding::Footprint::Link& touched : footprint.links) {
    if (touched.link >= 0 && touched.link < num_links) continue;
    ROSTAM_THROW(ConfigError, "a controller may touch link " << touched.link << "; links are 0 to " << num_links - 1);
  }
}

// What one controller sees: wake_at() must know which one to wake, and what it may touch.
class ControlHost::Plane : public control::ControlPlane {
 public:
  Plane(ControlHost& host, size_t controller, folding::Footprint footprint)
      : host_(host), controller_(controller), footprint_(std::move(footprint)) {}

  SimTime now() const override { return host_.queue_.now(); }
  void wake_at(SimTime time) override {
    host_.queue_.schedule(time, Priority::kNormal, &host_.wakes_, static_cast<uint64_t>(controller_));
  }
  double backlog(int32_t src, int32_t dst) const override { return host_.carrier_.network().backlog(src, dst); }
  std::vector<control::Backlog> backlogs() const override { return host_.carrier_.backlogs(); }
  std::vector<control::LinkBytes> link_bytes_of(int32_t flow) const override {
    check_reads("asks where a message goes");
    return host_.carrier_.link_bytes_of(flow);
  }
  double link_load(int32_t link) const override {
    return host_.target_.stats().link_bytes.at(static_cast<size_t>(host_.target_.simulated_link(link)));
  }
  std::vector<double> link_loads() const override {
    const std::vector<double> simulated = host_.target_.stats().link_bytes;
    std::vector<double> loads;
    const auto num_links = static_cast<int32_t>(host_.routes_.links().capacities.size());
    loads.reserve(static_cast<size_t>(num_links));
    for (int32_t link = 0; link < num_links; ++link) {
      loads.push_back(simulated.at(static_cast<size_t>(host_.target_.simulated_link(link))));
    }
    return loads;
  }
  void set_capacity(int32_t link, double bytes_per_s) override { host_.set_capacity(link, bytes_per_s); }
  void set_route(int32_t src, int32_t dst, const std::vector<routing::LinkShare>& links, SimTime latency) override {
    check_any("sets a route");
    routing::Route route;
    route.src = src;
    route.dst = dst;
    route.links = links;
    route.latency = latency;
    host_.end_points_.check_route(route, src, dst);
    host_.routes_.set_routes(std::move(route));
    host_.carrier_.move(src, dst);
  }
  const std::vector<routing::Path>& paths(int32_t src, int32_t dst) override { return host_.paths(src, dst); }
  void set_path(int32_t src, int32_t dst, const routing::Path& path, int64_t least_bytes) override {
    check_chooses("sets a path");
    host_.set_path(src, dst, path, least_bytes);
  }
  void unset_path(int32_t src, int32_t dst) override {
    check_chooses("unsets a path");
    host_.unset_path(src, dst);
  }
  bool move_message(int32_t flow, int32_t src, int32_t dst, const routing::Path& path) override {
    check_chooses("moves a message");
    return host_.move_message(flow, src, dst, path);
  }
  double capacity(int32_t link) const override { return host_.faults_.capacity(link); }
  int32_t add_link(int32_t src, int32_t dst, double bytes_per_s) override {
    check_any("adds a link");
    return host_.add_link(src, dst, bytes_per_s);
  }
  void remove_links(const std::vector<int32_t>& links) override {
    check_any("removes links");
    host_.remove_links(links);
  }
  void fail(const control::Part& part) override {
    check_any("fails a part");
    host_.defer([this, part] { host_.fail(part); });
  }
  void repair(const control::Part& part) override {
    check_any("repairs a part");
    host_.defer([this, part] { host_.repair(part); });
  }
  void restart(int32_t job, SimTime when, int32_t from_iteration, const std::vector<int32_t>& accelerators) override {
    check_any("restarts a job");
    host_.defer([this, job, when, from_iteration, accelerators] {
      host_.target_.restart(job, when, from_iteration, accelerators, host_.faults_);
    });
  }
  void hold(int32_t job, int32_t iteration, SimTime until) override {
    check_reads("holds a job");
    host_.target_.hold(job, iteration, until);
  }
  void renew_routes() override {
    check_any("renews routes");
    host_.defer([this] { host_.renew_routes(); });
  }
  bool is_failed(int32_t accelerator) const override {
    const int32_t count = host_.faults_.num_accelerators();
    if (accelerator < 0 || accelerator >= count) {
      ROSTAM_THROW(ConfigError, "a controller names accelerator " << accelerator << "; there are " << count);
    }
    return host_.faults_.is_failed(accelerator);
  }
  int32_t failure_of(int32_t accelerator) const override {
    return is_failed(accelerator) ? host_.faults_.failure_of(accelerator) : -1;
  }
  std::vector<int32_t> accelerators_of(int32_t job) const override { return host_.target_.accelerators_of(job); }
  int32_t num_jobs() const override { return host_.target_.num_jobs(); }
  int32_t num_iterations_done(int32_t job) const override { return host_.target_.num_iterations_done(job); }
  control::ScheduleTrial& schedule_trial() override { return host_.trial_; }

 private:
  void check_any(const char* what) const {
    ROSTAM_CHECK(footprint_.is_any, "a controller " << what << ", but its footprint is not any link");
  }
  void check_reads(const char* what) const {
    const bool may = footprint_.is_any || footprint_.reads_messages;
    ROSTAM_CHECK(may, "a controller " << what << ", but its footprint does not read messages");
  }
  void check_chooses(const char* what) const {
    const bool may = footprint_.is_any || footprint_.chooses_paths;
    ROSTAM_CHECK(may, "a controller " << what << ", but its footprint does not choose paths");
  }
  ControlHost& host_;
  size_t controller_;
  folding::Footprint footprint_;
};

ControlHost::ControlHost(Controllers& controllers, EventQueue& queue, ControlTarget& target, Carrier& carrier,
                         routing::RouteTable& routes, routing::EndPoints& end_points)
    : controllers_(controllers),
      queue_(queue),
      target_(target),
      carrier_(carrier),
      routes_(routes),
      end_points_(end_points),
      faults_(routes),
      first_policy_(routes.planes().front().policy),
      wakes_(*this, &ControlHost::wake),
      acts_(*this, &ControlHost::act) {
  size_t num_choosing = 0;
  for (size_t k = 0; k < controllers_.size(); ++k) {
    num_choosing += controllers_[k]->footprint().chooses_paths;
    subscriptions_ |= controllers_[k]->subscriptions();
    planes_.push_back(std::make_unique<Plane>(*this, k, controllers_[k]->footprint()));
  }
  if (num_choosing > 1) {
    ROSTAM_THROW(ConfigError, "controllers holds " << num_choosing
                                                   << " that choose paths of the same messages, such as "
                                                      "path_assignment; give one of them");
  }
  if (hears(control::kFlowStart | control::kFlowEnd | control::kFlowWait | control::kMove)) carrier_.tell(*this);
}

ControlHost::~ControlHost() = default;

void ControlHost::begin() {
  for (size_t k = 0; k < controllers_.size(); ++k) controllers_[k]->begin(*planes_[k]);
}

void ControlHost::set_capacity(int32_t link, double bytes_per_s) {
  const auto num_links = static_cast<int32_t>(routes_.links().capacities.size());
  if (link < 0 || link >= num_links || !(bytes_per_s >= 0)) {
    ROSTAM_THROW(ConfigError, "a controller sets link " << link << " to " << bytes_per_s << " bytes/s; links are 0 to "
                                                        << num_links - 1 << ", bandwidths >= 0");
  }
  faults_.set_capacity(link, bytes_per_s);
  change_capacity(link);
}

// To what the link can carry now, as all messages that start from now on know.
void ControlHost::change_capacity(int32_t link) {
  change_network(link);
  routes_.set_capacity(link, faults_.capacity(link));
  if (routes_.planes().size() > 1) carrier_.renew_offers();
}

void ControlHost::change_network(int32_t link) {
  carrier_.network().set_capacity(target_.simulated_link(link), faults_.capacity(link));
  carrier_.on_new_capacities();
}

int32_t ControlHost::add_link(int32_t src, int32_t dst, double bytes_per_s) {
  end_points_.add_link(src, dst);
  const int32_t link = routes_.add_link(bytes_per_s);
  const int32_t added = carrier_.network().add_links({{bytes_per_s, 0, SimTime::zero(), src, dst}});
  ROSTAM_CHECK(added == link, "link " << link << " of the route table is link " << added << " of the network");
  faults_.add_link(src, dst, bytes_per_s);
  if (faults_.capacity(link) != bytes_per_s) change_capacity(link);
  return link;
}

void ControlHost::remove_links(const std::vector<int32_t>& links) {
  carrier_.network().remove_links(links);
  carrier_.on_new_capacities();
  for (const int32_t link : links) {
    routes_.remove_link(link);
    faults_.remove_link(link);
  }
  carrier_.renew_offers();
}

void ControlHost::defer(Action action) {
  actions_.push_back(std::move(action));
  queue_.schedule(queue_.now(), Priority::kNormal, &acts_, 0);
}

void ControlHost::act(uint64_t) {
  const Action action = std::move(actions_.front());
  actions_.pop_front();
  action();
}

void ControlHost::fail(const control::Part& part) {
  for (const int32_t link : faults_.fail(part)) {
    change_network(link);
    unknown_.push_back(link);
  }
  control::Event event;
  event.kind = control::kFailure;
  event.part = part;
  event.failure = faults_.num_failures() - 1;
  failed_.push_back({static_cast<int32_t>(part.kind), part.id, part.plane_class, queue_.now()});
  const std::vector<int32_t> jobs = target_.cut_failed(faults_);
  if (jobs.empty()) tell(event);
  for (const int32_t job : jobs) {
    event.job = job;
    tell(event);
  }
}

void ControlHost::repair(const control::Part& part) {
  const auto [links, failure] = faults_.repair(part);
  for (const int32_t link : links) {
    change_network(link);
    unknown_.push_back(link);
  }
  control::Event event;
  event.kind = control::kRepair;
  event.part = part;
  event.failure = failure;
  tell(event);
}

void ControlHost::renew_routes() {
  for (const int32_t link : std::exchange(unknown_, {})) routes_.set_capacity(link, faults_.capacity(link));
  routes_.set_missing(routing::MissingRoute::kPark);
  for (size_t k = 0; k < routes_.planes().size(); ++k) {
    const routing::PolicyAfter& after = routes_.planes()[k].after;
    if (after) routes_.set_policy(k, after(faults_.failures_of(static_cast<int32_t>(k))));
  }
  carrier_.move_all();
}

const std::vector<routing::Path>& ControlHost::paths(int32_t src, int32_t dst) {
  if (routes_.planes().size() > 1) {
    ROSTAM_THROW(ConfigError, "a controller chooses among the paths of a pair, and this fabric has "
                                  << routes_.planes().size() << " planes that differ; it is for planes that are alike");
  }
  const auto known = paths_.find({src, dst});
  if (known != paths_.end()) return known->second;
  return paths_[{src, dst}] = routing::paths_of(*first_policy_, src, dst, control::ControlPlane::kMostPaths);
}

routing::Route ControlHost::route_over(int32_t src, int32_t dst, const routing::Path& path) {
  routing::Route route;
  route.src = src;
  route.dst = dst;
  for (const int32_t link : path.links) route.links.push_back({link, 1.0});
  route.latency = path.latency;
  end_points_.check_route(route, src, dst);
  return route;
}

void ControlHost::set_path(int32_t src, int32_t dst, const routing::Path& path, int64_t least_bytes) {
  routes_.set_routes(route_over(src, dst, path), least_bytes);
  carrier_.move(src, dst);
}

void ControlHost::unset_path(int32_t src, int32_t dst) {
  routes_.unset_routes(src, dst);
  carrier_.move(src, dst);
}

bool ControlHost::move_message(int32_t flow, int32_t src, int32_t dst, const routing::Path& path) {
  return carrier_.move_onto(flow, route_over(src, dst, path));
}

std::vector<workload::Report> ControlHost::report() const {
  std::vector<workload::Report> all;
  for (const auto& controller : controllers_) all.push_back(controller->report(queue_.now()));
  return all;
}

void ControlHost::wake(uint64_t controller) { controllers_[controller]->wake(*planes_[controller]); }

void ControlHost::tell(const control::Event& event) {
  for (size_t k = 0; k < controllers_.size(); ++k) {
    if (controllers_[k]->subscriptions() & event.kind) controllers_[k]->on(event, *planes_[k]);
  }
}

}  // namespace rostam::runtime
