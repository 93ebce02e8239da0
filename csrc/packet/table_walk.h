// walk_tables: one all-reduce through the reduction tables of switches, packet by packet, with the integers that it
// adds up. Addresses are spread over owners in turn, and the owner of an address fixes its home switch and its tree.
// pull: the owner requests an address; its home switch, the first hop, holds the request back until its table has an
//   entry, switches between take one if they have it and else hand on what comes; responses are added up on the way
//   to the owner, who writes the sum to all.
// push: all members write; a switch's table keeps partial sums, and evicts one for an address that finds none free:
//   between to the next hop, at home to all members, who finish it. Once all operands of a wave have come, what the
//   table still holds of it leaves likewise: the barrier behind a push flushes.
// Links carry one packet after another in the order in which they come, what a member writes ahead of what others
// requested of it; a packet is passed on when it is in whole. The
// output side of a switch's port carries operands to the table there and all that leaves, at `speedup` of its rate.
// Always checked: every member ends with the right sum of every address, once; tables never hold more than their
// entries and are empty at the end; every link carries what its packets say within its time.
// Example: walk_tables(trees, options).time
// Source: Klenk et al., An In-Network Architecture for Accelerating Shared-Memory Multiprocessor Collectives (ISCA
// 2020).
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "sim/sim_time.h"

namespace rostam::packet {

struct TableLink {
  int32_t src = 0, dst = 0;
  int32_t back = 0;  // the link the other way
  double bytes_per_s = 0;
  SimTime latency;  // and what the vertex behind it takes
};

// Members are vertices 0 to num_members - 1, switches the others. Of every owner: its home switch, and of every vertex
// its link towards home, -1 at home and off the tree.
struct TableTrees {
  int32_t num_members = 0, num_vertices = 0;
  std::vector<TableLink> links;
  std::vector<int32_t> home;
  std::vector<std::vector<int32_t>> parent;
};

struct TableOptions {
  bool is_pull = false;
  int64_t packets_per_owner = 1;
  int64_t packet_bytes = 128;                             // on a link
  int64_t request_bytes = 0;                              // on a link, of a pull
  int64_t entries = std::numeric_limits<int64_t>::max();  // of each switch's table, packets of one address each
  double speedup = 2;
  double injection = 1;                                            // share of their links' rate at which members send
  SimTime memory;                                                  // an access to it
  int64_t packets_per_wave = std::numeric_limits<int64_t>::max();  // of an owner
  int64_t waves = 1;                                               // that a member has under way at most
  SimTime most_skew;                                               // members start up to so much later, drawn
  bool draws_victims = false;  // evicts a drawn entry in place of the least recently used
  uint64_t seed = 0;           // of operands, starts and victims
};

struct TableResult {
  SimTime time;  // until the last member has the last sum
  int64_t num_evicted = 0;
  int64_t num_passed = 0;  // requests that found no entry at a switch between
  int64_t most_entries = 0;
  std::vector<int64_t> link_bytes;
};

// Throws: ConfigError for values out of range and trees that do not reach all members.
TableResult walk_tables(const TableTrees& trees, const TableOptions& options);

}  // namespace rostam::packet
