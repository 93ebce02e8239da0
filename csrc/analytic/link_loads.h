// Static loads: the bytes that a list of flows puts on every directed link, and what those loads allow.
// Example: headroom(routes, link_loads(routes, flows)) is the largest factor the flows may grow by.
#pragma once

#include <cstdint>
#include <vector>

#include "routing/route_table.h"

namespace rostam::analytic {

using routing::Flows;

// Bytes on every engine link of one plane of each class; num_bytes are of the mean plane. Flow i has hash i.
// Throws: NoRouteError for a pair without a path; ConfigError for an accelerator that does not exist.
// Cost: O(flows x path), or less where the policy knows how (spray: O(destinations x links)).
std::vector<double> link_loads(const routing::RouteTable& routes, const Flows& flows);

// The loads of `members` sending `num_bytes` in equal parts to every other one.
// Cost: as above; where routes follow symmetries, those of flows to one member of each orbit.
std::vector<double> all_to_all_loads(const routing::RouteTable& routes, const std::vector<int32_t>& members,
                                     double num_bytes);

// Largest factor by which the loads (as rates) can be multiplied until the first link is full; infinity without load.
double headroom(const routing::RouteTable& routes, const std::vector<double>& loads);

}  // namespace rostam::analytic
