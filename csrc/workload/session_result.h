// SessionResult: what a session measured, as plain arrays. Times in ps, bytes over all planes and devices.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "routing/end_points.h"
#include "sim/sim_time.h"

namespace rostam::workload {

// A task on the critical path: what decided when a later one could start.
struct PathNode {
  SimTime start;
  SimTime end;
  int32_t device = -1;
  int32_t template_id = -1;
  int32_t task = -1;
  int32_t microbatch = -1;
  bool is_host = false;  // a host launched kernels all the while, the task's as the last
  bool is_hold = false;  // the task could have begun, but for a controller that held its job
  bool is_join = false;  // the moment a rank entered a collective or send: no duration, not reported
};

struct TimelineEntry {
  int32_t device = 0;
  int32_t stream = 0;
  int32_t template_id = 0;
  int32_t task = 0;
  int32_t microbatch = 0;
  int32_t iteration = 0;
  SimTime start;
  SimTime end;
  SimTime host_wait;  // until the start, for the host alone
};

// Buckets of the breakdown: compute, launch, bubble, waits for the host, then exposed communication by category.
enum Bucket : int32_t {
  kComputeBucket = 0,
  kLaunchBucket = 1,
  kBubbleBucket = 2,
  kHostBucket = 3,
  kFirstCategoryBucket = 4
};

// The collectives that a job's ranks took part in, of one category in one iteration; a rank's time is from its join to
// its end. Over all ranks: how many times one took part, their times and the longest, the bytes that they sent. The sum
// of times is no time of the simulation: many ranks may pass what a clock of 64 bits holds.
struct CollectiveTimes {
  int64_t count = 0;
  double total_ps = 0;
  int64_t longest_ps = 0, sent_bytes = 0;
};

// A job was cut, by a failure or a restart, and went on with an earlier iteration. Bytes of all planes that were sent
// for that iteration and later ones until then: what had arrived, and what was lost under way.
struct Restart {
  SimTime cut, start;
  int32_t from_iteration = 0;
  int64_t sent_bytes = 0, received_bytes = 0, lost_bytes = 0;
  std::vector<int32_t> accelerators;  // of its devices from then on
};

// A time in which what decided an iteration's end waited for messages that nothing carried: on a failed part, a link
// without capacity, or without a route. failure: the first of those that they suffered from, -1 where none is known.
struct Stall {
  int32_t iteration = 0;
  SimTime begin, end;
  int32_t failure = -1;
};

// A part that failed in a run: a PartKind of control, its number and class of planes.
struct FailedPart {
  int32_t kind = 0, id = 0, plane_class = 0;
  SimTime time;
};

struct JobResult {
  std::vector<SimTime> iteration_ends;  // T_0 = start, T_1, ...
  bool is_steady = false;
  int32_t num_averaged = 1;                  // last iterations that sums below are over
  std::vector<CollectiveTimes> collectives;  // [category][iteration]
  std::vector<PathNode> critical_path;       // to the last iteration's end, latest first
  std::vector<Restart> restarts;
  std::vector<Stall> stalls;  // of iterations that counted, by time; none unless they are watched
};

// What a controller has to say of a run, by name.
using Report = std::map<std::string, std::variant<std::vector<int64_t>, std::vector<double>, std::string>>;

struct SessionResult {
  std::vector<JobResult> jobs;
  int32_t num_buckets = 0;
  std::vector<int64_t> breakdown_ps;  // sums over the job's averaged iterations, [device][bucket], all devices
  // Last iteration of each job, [job][category].
  std::vector<int64_t> sent_bytes, received_bytes, num_messages;
  std::vector<double> link_bytes, link_busy_s;  // per engine link, mean of job 0's averaged iterations, one plane
  // The whole run on one plane, messages that are under way included: per engine link, per device.
  std::vector<double> total_link_bytes, wire_sent_bytes, wire_received_bytes;
  // What devices sent and received on accelerators that are not the task graph's for them, like wire_sent_bytes.
  struct Elsewhere {
    int32_t accelerator = 0;
    double sent_bytes = 0, received_bytes = 0;
  };
  std::vector<Elsewhere> wire_elsewhere;
  std::vector<routing::Stray> strays;  // of the whole run on one plane
  std::vector<int64_t> device_end_ps;  // last task of each device
  double forwarded_bytes = 0;   // by accelerators that were neither source nor destination, the whole run, one plane
  std::vector<Report> reports;  // of the controllers
  std::vector<FailedPart> failed;
  int32_t num_simulated_devices = 0;
  int64_t num_events = 0;
  int64_t num_solves = 0;
  std::vector<std::string> checks;  // conservation laws that were checked and held
  std::vector<std::string> notes;   // of the engine
  std::vector<TimelineEntry> timeline;
};

}  // namespace rostam::workload
