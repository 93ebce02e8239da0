// ControlPlane: what a controller can see and do in a running simulation. Implemented by runtime.
// Links are engine links of the route table; accelerators are the fabric's. Changes hold from now on.
#pragma once

#include <cstdint>
#include <vector>

#include "control/schedule_trial.h"
#include "routing/paths.h"

namespace rostam::control {

// Something that can fail. A link is an engine link, one direction of a cable; a switch is one of the fabric's, counted
// from 0, in one class of planes; an accelerator fails in all planes.
enum class PartKind : uint8_t { kAccelerator, kLink, kSwitch };
struct Part {
  PartKind kind = PartKind::kAccelerator;
  int32_t id = 0;
  int32_t plane_class = 0;  // of a switch
};

// Bytes that the messages of a pair of accelerators have still to send, over all planes.
struct Backlog {
  int32_t src = 0;
  int32_t dst = 0;
  double num_bytes = 0;
};

// Bytes that a message puts on a link, those of its protocol included, on the plane that is simulated.
struct LinkBytes {
  int32_t link = 0;
  double bytes = 0;
};

class ControlPlane {
 public:
  virtual ~ControlPlane() = default;

  virtual SimTime now() const = 0;

  // Calls the controller's wake() then. REQUIRES: time >= now().
  virtual void wake_at(SimTime time) = 0;

  // Bytes that messages between two accelerators have still to send.
  virtual double backlog(int32_t src, int32_t dst) const = 0;
  // The same of every message under way, or waiting, one entry each.
  virtual std::vector<Backlog> backlogs() const = 0;
  // Where a message under way (Event::flow) goes, all of it. REQUIRES: a footprint that reads messages, and one of a
  // job's.
  virtual std::vector<LinkBytes> link_bytes_of(int32_t flow) const = 0;
  // Bytes that crossed a link up to now.
  virtual double link_load(int32_t link) const = 0;
  // The same of every link. Cost: O(links + routes).
  virtual std::vector<double> link_loads() const = 0;

  // Units: [bytes/s]; 0 stalls the messages on the link. Throws: ConfigError for a link that does not exist.
  virtual void set_capacity(int32_t link, double bytes_per_s) = 0;

  // Messages between two accelerators take these links, those in flight with their remaining bytes. REQUIRES: the
  // controller's footprint is any. Throws: ConfigError for a link that does not exist or is removed; InternalError if
  // the route does not lead from src to dst.
  virtual void set_route(int32_t src, int32_t dst, const std::vector<routing::LinkShare>& links, SimTime latency) = 0;

  // The single paths of a pair as the run began, in the order of the vertices that they go through (routing::paths_of);
  // also those over links that have failed since. Valid for the run. Throws: ConfigError where planes differ, and for a
  // pair with more than kMostPaths.
  static constexpr size_t kMostPaths = 1024;
  virtual const std::vector<routing::Path>& paths(int32_t src, int32_t dst) = 0;

  // These four REQUIRE a footprint that is any, or one that chooses paths; the path is one of paths(src, dst).
  //
  // Messages of at least least_bytes between two accelerators, those in flight and those to come, take a path.
  virtual void set_path(int32_t src, int32_t dst, const routing::Path& path, int64_t least_bytes) = 0;
  // They take what the routing has for them again.
  virtual void unset_path(int32_t src, int32_t dst) = 0;
  // What is left of one message (Event::flow) takes a path until routes of its pair change. Returns false if it has
  // left its source.
  virtual bool move_message(int32_t flow, int32_t src, int32_t dst, const routing::Path& path) = 0;
  // What a link can carry now [bytes/s]; 0 if it has failed.
  virtual double capacity(int32_t link) const = 0;

  // Adds a directed link between two accelerators; returns its id. Removing a link stalls the messages on it until that
  // is given another route. REQUIRES: the footprint is any.
  virtual int32_t add_link(int32_t src, int32_t dst, double bytes_per_s) = 0;
  virtual void remove_links(const std::vector<int32_t>& links) = 0;

  // These three take hold at this instant, once what happens now is through. REQUIRES: the footprint is any.
  //
  // A part fails: its links stand still, all of those at an accelerator or a switch, until it is repaired; messages on
  // them stall unless they are given another route (MODEL F19). A job with a device on a failed accelerator, or on one
  // whose links out or in have all failed (MODEL A1), is cut: what it has under way is given up, and unless it is
  // restarted the run ends in a ConfigError.
  // A part that has failed may fail again; a repair ends the first of its failures, and it works after the last.
  // Throws: ConfigError for a part that does not exist; repair also for one that has not failed.
  virtual void fail(const Part& part) = 0;
  virtual void repair(const Part& part) = 0;
  // What the job has under way is given up; at `when` it goes on with an iteration that has ended, or the first that
  // has not, its k-th device on the k-th of `accelerators` (empty: where they are). Iterations that are done again are
  // counted once, when they end for the last time; what was sent for them before is stated apart.
  // Throws: ConfigError for a job that does not exist or is through, a time before now, an iteration that has not been
  // reached, and accelerators that do not exist, have failed, are named twice or taken by another job.
  virtual void restart(int32_t job, SimTime when, int32_t from_iteration, const std::vector<int32_t>& accelerators) = 0;

  // Tasks of this iteration of a job, and of later ones, that have not been launched yet begin at `until` or later; a
  // later call for the same job replaces it. To hold a whole iteration: when told of its start (kIterationStart).
  // Throws: ConfigError for a job that does not exist, a time before now or an iteration that has ended.
  virtual void hold(int32_t job, int32_t iteration, SimTime until) = 0;

  // From now on messages, those in flight with their remaining bytes, take the routes that the routing has among the
  // parts that work now (MODEL F19). Those of a pair without a path wait where they are. REQUIRES: the footprint is
  // any.
  virtual void renew_routes() = 0;

  // Whether an accelerator, or all of its links out or in, have failed. Throws: ConfigError if it does not exist.
  virtual bool is_failed(int32_t accelerator) const = 0;
  // The number of the failure (Event) that holds it, the first of several; -1 if it works, or failed before the run.
  virtual int32_t failure_of(int32_t accelerator) const = 0;

  // Where a job's devices are, and how many of its iterations have ended.
  // Throws: ConfigError for a job that does not exist.
  virtual std::vector<int32_t> accelerators_of(int32_t job) const = 0;
  // 0 where flows run, and no jobs.
  virtual int32_t num_jobs() const = 0;
  virtual int32_t num_iterations_done(int32_t job) const = 0;

  // Of the run: all that set its circuits judge a schedule together.
  virtual ScheduleTrial& schedule_trial() = 0;
};

}  // namespace rostam::control
