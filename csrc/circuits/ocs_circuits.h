// Circuits of Q optical circuit switches for one demand, set once (MODEL G21).
// Example: set_ocs_circuits(demand, OcsPorts{16}).count[0].
//
// Objective: the largest minimum of count / bytes over the demanded pairs, with at most Q circuits out of and into
// every accelerator; then ports that are left go to the slowest pair that can take one.
#pragma once

#include <cstdint>
#include <vector>

#include "circuits/demand.h"

namespace rostam::circuits {

struct OcsPorts {
  int32_t num_ocs = 0;        // working switches: circuits that an accelerator can send on, and receive on
  bool is_symmetric = false;  // as many circuits back as forth
  bool is_duplex = false;     // both directions of a circuit on one switch; implies is_symmetric
  bool can_relay = false;  // pairs may stay without a circuit where others' reach them; the largest demands get theirs
                           // first
  bool may_leave_out = false;  // the same, whether circuits of others reach them or not: they do where that can be
};

// A circuit that is set already, on one of the switches.
struct OcsCircuit {
  int32_t src = 0;
  int32_t dst = 0;
  int32_t ocs = 0;
};

// Pairs with at least one circuit, ordered by (src, dst). Circuit i joins pair circuit_pair[i] on switch
// circuit_ocs[i]; on every switch each accelerator sends on, and receives on, at most one circuit.
struct OcsCircuits {
  std::vector<int32_t> src;
  std::vector<int32_t> dst;
  std::vector<int32_t> count;
  std::vector<int32_t> circuit_pair;
  std::vector<int32_t> circuit_ocs;
  int32_t colouring_gap = 0;  // directed circuits given up because both directions found no common switch
};

// Exact for directed and symmetric circuits: counts grow one at a time at the slowest pair, which visits every ratio
// k / bytes in ascending order with its least counts, until the slowest pair finds no port; edge colouring then
// splits any such counts over the switches. Duplex circuits colour a graph that is not bipartite: a heuristic, whose
// loss is `colouring_gap`.
// With relays several numbers of the largest demands are tried with circuits of their own, all others going over these
// (or round a ring that all share), and the one whose busiest circuit carries least stays; of directed circuits that
// are set once those are moved about further (improve_relays). Pairs of 0 bytes hold circuits only then. Throws:
// ConfigError if an accelerator has more peers than circuits and cannot relay, or if relays cannot reach. `held`:
// circuits of before, which stay on their switches where their pairs still get them, as far as the colouring lets them;
// of duplex circuits none does. Cost: O(N Q log P) for P pairs, plus the colouring. Source: SiP-ML A.1, reformulated.
OcsCircuits set_ocs_circuits(const Demand& demand, const OcsPorts& ports, const std::vector<OcsCircuit>& held = {});

}  // namespace rostam::circuits
