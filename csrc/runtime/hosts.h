// Hosts: what every device's host has issued by when. A host issues the kernels of all streams in program order, one
// every `launch`, ahead of its device, across instances and iterations. It stops only in front of a task that it waits
// for (Task::is_awaited_by_host) until what that one waits for has ended.
//
// Kernel i of a task, issued from clock c on, starts at max(end of kernel i - 1, c + h_1 + ... + h_i), so a task of
// kernels d_1..d_n that could start at s ends at max(s, c + lead) + sum d, lead = max_i(h_1 + ... + h_i -
// (d_1 + ... + d_(i-1))): one number for each task, found once. h_i is `launch` unless the task says otherwise.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/instances.h"

namespace rostam::runtime {

class Hosts {
 public:
  // launch: what a kernel, collective or message costs a host; 0: hosts never limit.
  Hosts(const WeightedSystem& system, SimTime launch, Instances& instances, CriticalPath& path);

  bool is_limiting() const { return launch_ > SimTime::zero(); }

  // The device's host begins anew.
  void reset(int32_t device, SimTime when);

  // The device's newest instance was made: the host comes to it when it is through with the one before.
  void add_newest(int32_t device);

  // When the task may begin if its kernels are to follow each other without gaps; never() while the host waits in front
  // of a task before it.
  SimTime earliest(const TaskRef& task) const;

  // What the host waits for in front of the task ended at `when`, `cause` as the last. Returns whether this is news.
  bool release(const TaskRef& task, SimTime when, const CriticalPath::Ref& cause);

  // The stretch of the critical path in which the host issued all up to the task, without a stop, until `now`.
  CriticalPath::Ref add_to_path(const TaskRef& task, SimTime now) const;

 private:
  struct Place {
    int32_t span = 0;  // stops of the host in the template up to the task
    SimTime before;    // what of that span is issued before it costs
  };
  struct Issues {  // of a template
    std::vector<Place> places;
    std::vector<SimTime> costs;               // of issuing each span
    std::vector<std::vector<SimTime>> leads;  // [speed][task]
  };
  void list_template(const Template& body, const std::vector<double>& slowdowns);
  SimTime issue_of(const Task& task, size_t kernel) const {
    return task.issues.empty() ? launch_ : task.issues[kernel];
  }
  SimTime cost_of(const Task& task) const;
  SimTime lead_of(const Task& task, double slowdown) const;
  HostSpan behind(const Instance& instance, size_t span) const;
  const Issues& issues_of(const Instance& instance) const { return issues_[instance.template_id]; }

  const WeightedSystem& system_;
  SimTime launch_;
  Instances& instances_;
  CriticalPath& path_;
  std::vector<Issues> issues_;     // by template
  std::vector<int32_t> speed_of_;  // by device, into leads
  std::vector<HostSpan> ends_;     // by device: behind its newest instance
};

}  // namespace rostam::runtime
