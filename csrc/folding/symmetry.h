// Symmetry: folding by the maps that a fabric declares (fabric::Blueprint::symmetries), for systems with more channels
// than refinement can look at: an all-to-all of p ranks has p^2 of them, and its orbits need the routes of one rank.
#pragma once

#include <memory>
#include <optional>

#include "folding/footprint.h"
#include "folding/weighted_system.h"
#include "routing/route_table.h"

namespace rostam::folding {

// Devices and links that maps of the system onto itself take to each other are folded together. Every map is checked
// first: that it takes the fabric's working links to equal ones, servers to servers, and devices to devices that do the
// same with the images of their peers. The orbits are an equitable partition, maybe not the coarsest.
// Empty where the system has few channels, nothing is symmetric, or routes may depend on more than the fabric's shape.
// REQUIRES: graph frozen. Cost: maps x (links + devices) + the routes of one device of each orbit.
std::optional<WeightedSystem> fold_by_symmetry(std::shared_ptr<const workload::TaskGraph> graph,
                                               const routing::RouteTable& routes, const Footprint& footprint);

}  // namespace rostam::folding
