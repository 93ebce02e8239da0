// Closed forms of collectives on an idle fabric of uniform latency (MODEL A5), exact to the picosecond per step.
// Example: collective_time("all_reduce", "ring", 1 << 30, 8, alpha, 50e9).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/sim_time.h"

namespace rostam::analytic {

// What a closed form depends on. `num_bytes` is S of MODEL A4, alpha the latency of one message, and
// `bytes_per_s` the bandwidth of the one interface (and direction) that the algorithm uses: B / interfaces used.
struct CollectiveCase {
  int64_t num_bytes = 0;
  int32_t num_ranks = 1;
  SimTime alpha;
  double bytes_per_s = 0;
  std::vector<int32_t> grid = {};  // sides of the ranks' grid, where the algorithm runs on one
  int32_t num_pieces = 1;          // of the buffer, that go along a chain one behind the other
};

// Time of one collective; p ranks, chunk c = ceil(S/p), t(x) = transmit_time(x):
//   all_reduce ring                 2 (p-1) (alpha + t(c))
//   all_reduce bidirectional_ring   2 (p-1) (alpha + t(ceil(ceil(S/2) / p))), one interface per direction
//   all_reduce binomial_tree        2 ceil(log2 p) (alpha + t(S))
//   all_reduce halving_doubling     2 sum over k = 1..log2 q of (alpha + t(q / 2^k ceil(S/q))), q = largest power of
//                                   two <= p; if q < p also 2 (alpha + t(S)) to fold the p - q ranks in and out
//   all_reduce dual_hamiltonian_rings  2 (p-1) (alpha + t(ceil(S/4p))), one of four interfaces
//   reduce_scatter, all_gather torus_nd  on k sides d_i above 1: sum over their sum(d_i - 1) steps of
//                                   alpha + t(m u), u = ceil(S/2kp), one of 2k interfaces, m the chunks on the busiest
//                                   one: copy i goes d_i - 1 steps along side i with p/d_i chunks, d_i-1 - 1 along the
//                                   side before with p/(d_i d_i-1), and so on round all sides; they add up where
//                                   several go along one. Equal sides d: sum over k phases f = 1..k of
//                                   (d-1) (alpha + t(d^(k-f) u))
//   reduce_scatter, all_gather torus_nd_aligned  the same, but all copies begin each of their k phases at once;
//                                   along side i go (d_i - 1) q_i steps with a q_i-th of the chunks, q_i =
//                                   round(max d / d_i), u = ceil(S/2kQp), Q chunks for each of above, Q the least
//                                   multiple of all q_i
//   all_reduce torus_nd, torus_nd_aligned  twice that
//   all_reduce torus_2d             torus_nd on two sides: n x n: 4 (n-1) alpha + 2 (n-1) (t(n u) + t(u))
//   all_reduce torus_2d_unidirectional  the same with u = ceil(S/2p), one of two interfaces
//   reduce_scatter, all_gather ring (p-1) (alpha + t(c)); dual_hamiltonian_rings (p-1) (alpha + t(ceil(S/4p)))
//   all_to_all direct               alpha + t((p-1) c)
//   broadcast, reduce ring          (p-1) (alpha + t(c)) + (n-1) t(c), c = ceil(S/n), one chain in n pieces
//   broadcast, reduce binomial_tree ceil(log2 p) (alpha + t(S))
//   send_recv direct                alpha + t(S)
//   halo neighbours                 alpha + t(2 ceil(S/2)), one interface for both neighbours;
//                                   p = 2: alpha + t(ceil(S/2))
//   halo_up, halo_down neighbours   alpha + t(S)
//   shift ring                      alpha + t(S)
// Throws: ConfigError for an unknown pair of names (lists them) or a case out of range. Source: MODEL A5.
SimTime collective_time(const std::string& collective, const std::string& algorithm, const CollectiveCase& given);

// "collective/algorithm" of every closed form.
std::vector<std::string> closed_form_names();

}  // namespace rostam::analytic
