// Region routes: what a transfer loads whose bytes switches add up, or copy, where its paths meet. Paths from all
// members to one of them, the owner, form a tree; out of a switch goes one stream, however many came in, out of an
// accelerator that forwards as many as came in, since it does not add. Copies go the same ways back. Example:
// region_route(routes, SwitchOp::kPush, {0, 1, 2, 3}, 0) on one switch has every up- and downlink, a quarter of the
// transfer's bytes each: what each of four ranks adds to the sum of which each gets a copy.
#pragma once

#include <cstdint>
#include <vector>

#include "routing/route_table.h"

namespace rostam::routing {

// What becomes of the data of a region's members, for its owner.
enum class SwitchOp : uint8_t {
  kPull,       // the owner loads the sum of all members' data, and writes it to all of them
  kPush,       // all members write their data, whose sum the switches write to all of them
  kReduce,     // the owner loads the sum
  kMulticast,  // the owner writes to all members
};

// pull, push, reduce, multicast.
const char* name_of(SwitchOp op);

// The route of a transfer of the data that all members together send: the owner's own go through the switch too, and it
// gets a copy of what is written, unless it forwards for others and so adds and keeps its own. Several trees share the
// bytes where a place has several next hops; which ones differs from owner to owner, so that all of them are used
// alike. owner: index into members. Shares of links and ends are of the transfer's bytes; its latency is the longest
// path's. Throws: NoRouteError if a member does not reach the owner, ConfigError for planes that differ or links that
// lead one way only. Cost: links within the tree's depth, x trees.
Route region_route(const RouteTable& routes, SwitchOp op, const std::vector<int32_t>& members, size_t owner);

}  // namespace rostam::routing
