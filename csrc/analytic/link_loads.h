// Static loads: the bytes that a list of flows puts on every directed link, and what those loads allow.
// Example: headroom(*fabric, link_loads(fabric, "spray", flows)) is the largest factor the flows may grow by.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fabric/fabric.h"

namespace rostam::analytic {

// Flow i carries num_bytes[i] from accelerator src[i] to dst[i].
struct Flows {
  std::vector<int32_t> src;
  std::vector<int32_t> dst;
  std::vector<double> num_bytes;
};

// Bytes on every link of the fabric, by link id. `spray` merges the flows to one destination; other routings
// route one by one, flow i with message hash i.
// Throws: NoRouteError for a pair without a path; ConfigError for an unknown routing or accelerator.
// Cost: spray O(destinations x links), others O(flows x path).
std::vector<double> link_loads(std::shared_ptr<const fabric::Fabric> fabric, const std::string& routing,
                               const Flows& flows);

// The loads of all accelerators sending `num_bytes` in equal parts to every other working one.
std::vector<double> all_to_all_loads(std::shared_ptr<const fabric::Fabric> fabric, const std::string& routing,
                                     double num_bytes);

// Largest factor by which the loads (as rates) can be multiplied until the first link is full; infinity without load.
double headroom(const fabric::Fabric& fabric, const std::vector<double>& loads);

}  // namespace rostam::analytic
