// AdaptiveRates: max-min fair rates of flows that may divide themselves over all their paths as they like, and of the
// divisions that give these rates the one with the least sum of squared link loads (MODEL F18, `adaptive`).
// Rates: level by level, a linear program raises those of all flows that are not yet held, which are then those whose
// demand has a positive dual value. Division: the point of least norm of the polytope of loads (Wolfe's algorithm, with
// the same program as its oracle). The program is a primal simplex over paths, made as shortest paths under the links'
// dual values; each flow's own equation is met by a key path, so that the basis has a row a link only.
// Sources: Nace, Doan, Klopotowski, Gourdin: Max-min fairness in multi-commodity flows, Computers & OR 2008; Dantzig,
// Van Slyke: Generalized upper bounding techniques, JCSS 1967; Wolfe: Finding the nearest point in a polytope,
// Mathematical Programming 1976.
#pragma once

#include <cstdint>
#include <vector>

#include "routing/route.h"

namespace rostam::flow {

// Flows between the same ends, all with the same rate.
struct Demand {
  const routing::Steps* paths = nullptr;  // over links that index the capacities
  double num_flows = 1;
  double rate_cap = 0;                                    // of each flow [bytes/s]; 0: none
  const std::vector<routing::LinkShare>* even = nullptr;  // a division that is tried first, over all paths
};

struct Division {
  double rate = 0;                         // of each flow [bytes/s]
  std::vector<routing::LinkShare> shares;  // of it, by link; `even` where the rate is 0
};

// The rates are exact, the sum of squares is within 1e-5 of the least. REQUIRES: all demands' paths have ends.
// Cost: links that the demands may take, to the square, for each step of the simplex; steps grow with the demands.
// Throws: ConfigError for more than 512 links, InternalError where rounding has spoilt the program.
std::vector<Division> adaptive_rates(const std::vector<Demand>& demands, const std::vector<double>& capacities);

}  // namespace rostam::flow
