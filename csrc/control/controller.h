// Controller: acts on a running network. It is told of what it subscribes to and of the times it asked to be woken at.
#pragma once

#include <cstdint>

#include "control/control_plane.h"
#include "folding/footprint.h"

namespace rostam::control {

// What a controller may subscribe to; a set of them is their sum.
enum EventKind : uint32_t {
  kFlowStart = 1,     // a message goes onto the network
  kFlowEnd = 2,       // its last byte has left the source
  kFlowWait = 4,      // it has no route, and waits for one
  kIterationEnd = 8,  // of a job
};

struct Event {
  EventKind kind = kFlowStart;
  int32_t src = -1, dst = -1;  // flows: accelerators
  int64_t bytes = 0;           // flows
  int32_t job = -1;            // iterations
};

class Controller {
 public:
  virtual ~Controller() = default;

  // Before anything runs.
  virtual void begin(ControlPlane& plane) = 0;
  virtual void wake(ControlPlane& /*plane*/) {}
  virtual void on(const Event& /*event*/, ControlPlane& /*plane*/) {}

  virtual uint32_t subscriptions() const { return 0; }
  virtual folding::Footprint footprint() const = 0;
};

}  // namespace rostam::control
