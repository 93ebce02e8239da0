// Router: turns a pair of accelerators into the weighted set of links a flow between them loads.
// This is all that engines know of fabrics.
#pragma once

#include <cstdint>
#include <vector>

#include "fabric/fabric.h"
#include "sim/sim_time.h"

namespace rostam::routing {

// `share` of the flow's rate crosses engine link `link`. An engine link is one directed link, or one bundle
// of equal links whose capacity is their sum.
struct LinkShare {
  int32_t link = 0;
  double share = 1;
};

struct Route {
  int32_t src = -1, dst = -1;  // accelerators at its ends
  std::vector<LinkShare> links;
  SimTime latency;  // alpha: link and switch latencies on the (longest) path used + message overhead
};

class Router {
 public:
  virtual ~Router() = default;

  // Route of a message from accelerator `src` to `dst`. `message_hash` seeds the choice of `hash`
  // routing and is ignored by `spray`. REQUIRES: src != dst, both healthy accelerators.
  // Throws: NoRouteError if no path is left.
  virtual Route route(int32_t src, int32_t dst, uint64_t message_hash) const = 0;

  // The fabric that routes lead over, failures included.
  virtual const fabric::Fabric& fabric() const = 0;

  // True if the route depends on the pair alone, so that it may be cached and folded.
  virtual bool is_hash_free() const = 0;

  // Capacity of every engine link [bytes/s], indexed by LinkShare::link.
  virtual const std::vector<double>& capacities() const = 0;

  // For each engine link the fabric links (ids) it stands for; more than one for a bundle.
  virtual const std::vector<std::vector<int32_t>>& members() const = 0;
};

}  // namespace rostam::routing
