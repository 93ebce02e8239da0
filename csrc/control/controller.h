// Controller: acts on a running network. It is told of what it subscribes to and of the times it asked to be woken at.
#pragma once

#include <cstdint>
#include <vector>

#include "control/control_plane.h"
#include "folding/footprint.h"
#include "workload/session_result.h"

namespace rostam::control {

// What a controller may subscribe to; a set of them is their sum.
enum EventKind : uint32_t {
  kFlowStart = 1,     // a message goes onto the network
  kFlowEnd = 2,       // its last byte has left the source, or it is cut
  kFlowWait = 4,      // it has no route, and waits for one
  kIterationEnd = 8,  // of a job
  kPhaseStart = 16,   // a device begins the first task of a template, for a micro-batch: a forward, say
  kPhaseEnd = 32,     // it has ended the last one
  kFailure = 64,      // of a part; once for each job that is cut by it
  kRepair = 128,
  // A job's first device is about to begin an iteration, with a kernel, a collective or a message that it sends. Told
  // before anything of it begins.
  kIterationStart = 512,
  kMove = 256,  // a message under way takes other links from now on, since routes have changed
};

struct Event {
  EventKind kind = kFlowStart;
  int32_t src = -1, dst = -1;  // flows: accelerators
  int64_t bytes = 0;           // flows
  int32_t job = -1;            // iterations, phases; flows: -1 without jobs; failures: -1 if none is cut
  int32_t accelerator = -1;    // phases
  int32_t template_id = -1;    // phases: of the task graph's
  int32_t microbatch = -1;     // phases
  int32_t iteration = -1;      // phases, iterations, flows of jobs
  int32_t category = -1;       // flows of jobs: the kind of groups that they are sent in, of the task graph's
  Part part;                   // failures, repairs
  int32_t failure = -1;        // failures: its number, in the order of all of the run; repairs: of that which ends
  int32_t flow = -1;           // flows, moves: its number as long as it is under way
  std::vector<int32_t> links;  // moves: engine links
  std::vector<int32_t> left;   // moves: those that it was on
};

class Controller {
 public:
  virtual ~Controller() = default;

  // Before anything runs.
  virtual void begin(ControlPlane& plane) = 0;
  virtual void wake(ControlPlane& /*plane*/) {}
  virtual void on(const Event& /*event*/, ControlPlane& /*plane*/) {}

  // Whether it tries nothing out that it may take back: iterations that are alike while it does are not steady.
  virtual bool is_settled() const { return true; }

  virtual uint32_t subscriptions() const { return 0; }
  virtual folding::Footprint footprint() const = 0;

  // At the end of a run.
  virtual workload::Report report(SimTime /*now*/) const { return {}; }
};

}  // namespace rostam::control
