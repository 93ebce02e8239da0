// Routers: fabrics whose switches form a graph of their own, each with as many consecutive accelerators on it.
// Accelerator k is on switch k / per_switch; switches follow the accelerators.
#pragma once

#include <cstdint>

#include "fabric/fabric.h"
#include "fabric/params.h"

namespace rostam::fabric {

// Links between accelerators from those between switches, which a fabric gives in closed form.
class RouterDistance : public DistanceFunction {
 public:
  RouterDistance(int32_t num_switches, int32_t per_switch) : num_switches_(num_switches), per_switch_(per_switch) {}

  int32_t num_switches() const { return num_switches_; }
  int32_t num_accelerators() const { return num_switches_ * per_switch_; }
  int32_t vertex(int32_t switch_index) const { return num_accelerators() + switch_index; }

  // Links between two switches, counted from 0, and the most there are.
  virtual int32_t between(int32_t a, int32_t b) const = 0;
  virtual int32_t widest() const = 0;

  int32_t distance(int32_t vertex, int32_t accelerator) const override {
    if (vertex == accelerator) return 0;
    const int32_t there = accelerator / per_switch_;
    if (vertex >= num_accelerators()) return 1 + between(vertex - num_accelerators(), there);
    return 2 + between(vertex / per_switch_, there);
  }
  int32_t diameter() const override { return num_accelerators() == 1 ? 0 : 2 + widest(); }

 private:
  int32_t num_switches_, per_switch_;
};

// The accelerators, switches and latencies of such a fabric, with the cables between accelerators and switches.
Blueprint design_routers(const char* name, int32_t num_switches, int32_t per_switch, const Params& params);

}  // namespace rostam::fabric
