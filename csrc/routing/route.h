// Route: the weighted set of engine links that a message between two accelerators loads, and its latency; for engines
// that walk packets also the steps. This is all that engines know of fabrics.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/sim_time.h"

namespace rostam::routing {

// `share` of the message's rate crosses engine link `link`. An engine link is one directed link, or one bundle
// of equal links whose capacity is their sum.
struct LinkShare {
  int32_t link = 0;
  double share = 1;
  bool operator==(const LinkShare& other) const { return link == other.link && share == other.share; }
};

// The paths of a route as a graph without circles, level by level: the first node is the source, the last one the
// destination, and hops lead from a level to the next one. Lanes follow each other, and so do graphs of paths that must
// not be mixed: hops lead to later nodes always.
struct Steps {
  struct Node {
    int32_t vertex = 0;
    int32_t phase = 0;  // or virtual channel: 0 unless the fabric's paths have several (fabric::PathRule)
    uint32_t first_hop = 0, end_hop = 0;
    // The first of the hops that packets take only if there is room before there is on others: they wait for all of
    // them, so that the others alone have to be free of circles (dependencies.h).
    uint32_t num_optional = 0;
  };
  struct Hop {
    int32_t link = 0;     // engine link
    uint32_t node = 0;    // where it leads
    int32_t channel = 0;  // the link's virtual channel: the phase behind it
  };
  std::vector<Node> nodes;
  std::vector<Hop> hops;
};

class Waypoints;

// Other ways than the steps, for packets (routing::Detail::kPackets): by way of one of `vertices`, each as likely as
// another. None: the steps are all.
struct Detours {
  std::shared_ptr<const Waypoints> legs;
  std::shared_ptr<const std::vector<int32_t>> vertices;
  // Every packet chooses where the two part: the steps, if what waits there times the links to go is no more than on
  // the way that it has drawn (UGAL-L). Else all take the ways.
  bool is_choice = false;
};

// The part of a route that lies in one plane: links[first_link .. end_link).
struct Lane {
  uint32_t first_link = 0, end_link = 0;
  uint32_t first_node = 0;  // of its steps
  SimTime latency;
  int32_t num_planes = 1;  // that are alike; each carries the same
  double bytes_per_s = 0;  // that each offers the pair: messages are split in this proportion
  Detours detours;
};

// What an accelerator sends and receives of a transfer that has several sources or sinks, as shares of its bytes.
struct RouteEnd {
  int32_t accelerator = 0;
  double sent = 0, received = 0;
};

struct Route {
  int32_t src = -1, dst = -1;  // accelerators at its ends
  std::vector<LinkShare> links;
  SimTime latency;  // alpha: link and switch latencies on the (longest) path used + message overhead
  Steps steps;      // empty unless asked for, and in folded systems
  // Planes that differ: a message is split over lanes and completes with the slowest. Empty: one lane of all links.
  std::vector<Lane> lanes;
  // Engines divide messages over the paths of `steps`, which are there, as they see fit; the shares are a first guess.
  bool is_adaptive = false;
  // Packets wait for all next hops of a place at once, and take the first that has room; of several the least loaded.
  bool is_by_load = false;
  Detours detours;  // of a route without lanes
  // Of a tree, whose links carry the bytes once whatever the number of its sources and sinks (region_route.h): all of
  // them. Empty: it leads from src to dst.
  std::vector<RouteEnd> ends;
};

// The steps of the graph at `first_node`, of a route over several lanes, by itself; `end_node` where the next begins.
Steps steps_between(const Steps& steps, uint32_t first_node, uint32_t end_node);

// Bytes of a message that each plane of each lane carries, rounded up. REQUIRES: the route has lanes.
std::vector<int64_t> lane_bytes(const Route& route, int64_t bytes);

}  // namespace rostam::routing
