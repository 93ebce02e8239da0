// RingFlow: wavelengths of one fibre, chosen one at a time as a unit flow once round the cut ring.
#pragma once

#include <cstdint>
#include <vector>

#include "circuits/ring_paths.h"

namespace rostam::circuits {

// A unit flow passes every place of the ring once, over a pair's edge (its circuit) or over dummy edges between
// neighbours (the wavelength lies idle there), so what it serves overlaps nowhere. The ring is cut at the place that
// the fewest wavelengths pass; an edge severed there carries its flow in both halves: the flow of its wavelength
// begins where that edge ends and ends where it begins.
class RingFlow {
 public:
  // What the other fibre does with the wavelength: accelerators that already drive it, or receive it.
  struct Taken {
    std::vector<uint8_t> drives;
    std::vector<uint8_t> receives;
  };

  // `counts`: wavelengths that each pair is to get; pairs of the other fibre are ignored. `cut_rank`: 0 cuts at
  // the place that the fewest wavelengths pass, 1 at the next, ...
  RingFlow(const Ring& ring, int32_t fibre, const std::vector<int32_t>& src, const std::vector<int32_t>& dst,
           const std::vector<RingPath>& paths, const std::vector<int32_t>& counts, int32_t cut_rank);

  // Serves one wavelength: appends the pairs that get it, at most once each, and takes it off what they are to get.
  // A flow is worth the segments and ports that it fills, each by `price[slack]`, where slack is how many of the
  // wavelengths still to come may pass it by: `num_left` (this one included) less what it still has to carry.
  // `sends`, `receives`: what each accelerator still has to drive and receive, on both fibres; updated.
  // Cost: O(N + pairs with something left).
  void serve(int32_t num_left, const std::vector<double>& price, const Taken& taken, std::vector<int32_t>& sends,
             std::vector<int32_t>& receives, std::vector<int32_t>& served);

 private:
  struct Edge {
    int32_t pair = 0;
    int32_t left = 0;  // wavelengths still to get
  };
  struct Severed {
    int32_t start = 0;
    int32_t end = 0;  // beyond the cut, counted from it
    int32_t pair = 0;
    int32_t left = 0;
  };

  void cut(const std::vector<RingPath>& paths, const std::vector<int32_t>& counts, int32_t cut_rank);
  Severed* choose_severed(const Taken& taken);
  void take(int32_t start, int32_t end, int32_t pair, std::vector<int32_t>& sends, std::vector<int32_t>& receives,
            std::vector<int32_t>& served);

  int32_t n_;
  int32_t fibre_;
  int32_t origin_ = 0;  // place of the cut
  const std::vector<int32_t>& src_;
  const std::vector<int32_t>& dst_;
  std::vector<Edge> edges_;   // by start, as begin_ says; finished ones are moved to the end of their run
  std::vector<int32_t> end_;  // of each edge: place, counted from the cut
  std::vector<int32_t> begin_;
  std::vector<int32_t> num_open_;  // edges with something left, by start
  std::vector<Severed> severed_;
  std::vector<int32_t> accelerator_;  // by place from the cut
  std::vector<int32_t> load_;         // what segments still have to carry, by place from the cut
  std::vector<double> by_edge_;       // worth of the best flow that reaches a place over a pair's edge
  std::vector<int32_t> via_;          // that edge; -1 where the dummy edge is better
};

}  // namespace rostam::circuits
