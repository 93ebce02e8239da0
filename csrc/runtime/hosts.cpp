#include "runtime/hosts.h"

#include <algorithm>
#include <cmath>

namespace rostam::runtime {

using workload::TaskKind;

Hosts::Hosts(const WeightedSystem& system, SimTime launch, Instances& instances, CriticalPath& path)
    : system_(system), launch_(launch), instances_(instances), path_(path) {
  if (!is_limiting()) return;
  std::vector<double> slowdowns;
  for (const workload::Device& device : system.devices) {
    const auto found = std::find(slowdowns.begin(), slowdowns.end(), device.slowdown);
    speed_of_.push_back(static_cast<int32_t>(found - slowdowns.begin()));
    if (found == slowdowns.end()) slowdowns.push_back(device.slowdown);
    ends_.push_back({device.start, device.start, CriticalPath::Ref()});
  }
  for (const Template& body : system.graph->templates) list_template(body, slowdowns);
}

void Hosts::list_template(const Template& body, const std::vector<double>& slowdowns) {
  Issues issues;
  issues.costs.emplace_back();
  for (const Task& task : body.tasks) {
    if (task.is_awaited_by_host) issues.costs.emplace_back();
    issues.places.push_back({static_cast<int32_t>(issues.costs.size()) - 1, issues.costs.back()});
    issues.costs.back() += cost_of(task);
  }
  for (const double slowdown : slowdowns) {
    std::vector<SimTime> leads;
    for (const Task& task : body.tasks) leads.push_back(lead_of(task, slowdown));
    issues.leads.push_back(std::move(leads));
  }
  issues_.push_back(std::move(issues));
}

SimTime Hosts::cost_of(const Task& task) const {
  if (task.kind != TaskKind::kCompute) return launch_;
  if (task.issues.empty()) return launch_.times(static_cast<int64_t>(task.kernels.size()));
  SimTime cost;
  for (const SimTime issue : task.issues) cost += issue;
  return cost;
}

SimTime Hosts::lead_of(const Task& task, double slowdown) const {
  if (task.kind != TaskKind::kCompute) return launch_;
  SimTime lead, issued, done;
  for (size_t k = 0; k < task.kernels.size(); ++k) {
    issued += issue_of(task, k);
    lead = std::max(lead, issued - done);
    done += SimTime::from_whole_ps(std::ceil(static_cast<double>(task.kernels[k].ps()) * slowdown));
  }
  return lead;
}

void Hosts::reset(int32_t device, SimTime when) {
  if (is_limiting()) ends_[device] = {when, when, CriticalPath::Ref()};
}

// The host's state behind a span of an instance; unknown if it has not come to that yet.
HostSpan Hosts::behind(const Instance& instance, size_t span) const {
  HostSpan state = instance.host[span];
  if (state.is_known()) state.clock += issues_of(instance).costs[span];
  return state;
}

void Hosts::add_newest(int32_t d) {
  if (!is_limiting()) return;
  Instance& made = instances_.at(d, instances_.next(d) - 1);
  made.host.resize(issues_of(made).costs.size());
  made.host.front() = ends_[d];
  ends_[d] = behind(made, made.host.size() - 1);
}

SimTime Hosts::earliest(const TaskRef& ref) const {
  const Instance& instance = instances_.at(ref.device, ref.sequence);
  const Issues& issues = issues_of(instance);
  const Place& place = issues.places[ref.task];
  const HostSpan& span = instance.host[static_cast<size_t>(place.span)];
  if (!span.is_known()) return SimTime::never();
  return span.clock + place.before + issues.leads[speed_of_[ref.device]][ref.task];
}

bool Hosts::release(const TaskRef& ref, SimTime when, const CriticalPath::Ref& cause) {
  Instance& instance = instances_.at(ref.device, ref.sequence);
  const auto span = static_cast<size_t>(issues_of(instance).places[ref.task].span);
  if (instance.host[span].is_known()) return false;
  const HostSpan before = behind(instance, span - 1);
  if (!before.is_known()) return false;  // it still waits in front of an earlier task
  instance.host[span] = before.clock < when ? HostSpan{when, when, cause} : before;
  if (span + 1 < instance.host.size()) return true;
  // It goes on to the instances that were made meanwhile, up to where it waits again.
  HostSpan end = behind(instance, span);
  for (int64_t sequence = ref.sequence + 1; sequence < instances_.next(ref.device); ++sequence) {
    Instance& later = instances_.at(ref.device, sequence);
    later.host.front() = end;
    end = behind(later, later.host.size() - 1);
    if (!end.is_known()) break;
  }
  ends_[ref.device] = end;
  return true;
}

CriticalPath::Ref Hosts::add_to_path(const TaskRef& ref, SimTime now) const {
  const Instance& instance = instances_.at(ref.device, ref.sequence);
  const HostSpan& span = instance.host[static_cast<size_t>(issues_of(instance).places[ref.task].span)];
  PathNode node;
  node.start = span.since;
  node.end = now;
  instances_.name(ref, node);
  node.is_host = true;
  return path_.add(node, span.cause);
}

}  // namespace rostam::runtime
