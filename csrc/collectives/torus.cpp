// torus_nd, torus_nd_aligned: all-reduce, reduce-scatter and all-gather on a torus of k sides d_0 ... d_k-1 by 2k
// copies of one algorithm on equal parts of the buffer, so that all 2k links of a rank are busy. A copy does a ring
// reduce-scatter along one side after the other, on what is left of its part, and ring all-gathers back; the copies
// begin at different sides, cyclic rotations of one order, and half of them go round every ring backwards. Sides of 1
// count for nothing. With u = ceil(S / (2k p)) and one interface B_if in a direction, on equal sides d:
//   reduce_scatter and all_gather: k (d-1) alpha + (d-1) (d^(k-1) + ... + d + 1) u / B_if
//   all_reduce: twice that, so 2 k (d-1) alpha + about 2 (1 - 1/p) S / (2k) beta, as few bytes as any through 2k links.
// On unequal sides `torus_nd` lets every copy go on at once: 2 sum(d_i - 1) steps, but copies are in different phases
// and meet on links: of 4 x 4 x 8 they take 1.53 times the bytes' time on all links, of 8 x 8 x 16 1.51.
// `torus_nd_aligned` begins each phase together, so that in each a side serves one copy each way. Where a side is
// shorter than the longest, D, its blocks go in q = round(D / d) pieces one behind the other, so that short rings have
// as many and as small messages: (d-1) q steps, and k phases of N = max (d_i - 1) q_i in either direction. Where all
// sides divide D a phase takes N (alpha + (largest message) / B_if), the largest being u p / (product of the sides of
// the copy's phases so far, the last one's times q): 1.16 and 1.07 times the bytes' time there, the
// least of all proportions of the parts; on 4 x 8 x 12 1.38 times, where others reach 1.32. Parts w_i in proportion to
// d / (d - 1) of their first side, each at its own pace in a phase, would take the sum over phases of max w_i (1 - 1/d)
// / (sides so far), of this phase's side d: 1.08 and 1.03. csrc/analytic/closed_forms.h has the sums. torus_2d is
// `torus_nd` on two sides, torus_2d_unidirectional half of its copies, which go one way only. Source: Sack and Gropp,
// Collective algorithms for multiported torus networks, ACM Transactions on Parallel Computing 1(2), 2015 (nearly 2k
// times a single port's bandwidth); HammingMesh V-A2 for two sides, whose column term drops a factor 2. Tori of three
// sides: Jouppi et al., TPU v4, ISCA 2023. Alignment and pieces: own.
#include <algorithm>
#include <cstddef>
#include <numeric>

#include "collectives/ring_chunks.h"
#include "collectives/schedule.h"

namespace rostam::collectives {

namespace {

enum class Goal { kReduceScatter, kAllGather, kAllReduce };

// Which copies there are, and how they step.
struct Style {
  Goal goal = Goal::kAllReduce;
  bool is_both_ways = true;
  bool is_aligned = false;
};

// One copy in one direction: the sides in the order in which it reduces along them, and the step of each phase's start.
struct Lane {
  std::vector<size_t> order;
  std::vector<int32_t> begins;
  bool is_backwards = false;
};

// What a lane does in a step: a ring's step along the side of a phase, with one piece of the block that is due.
struct Place {
  bool is_idle = true;
  bool reduces = false;
  size_t phase = 0;
  int32_t ring_step = 0;
  int32_t piece = 0;
};

class Torus : public Schedule {
 public:
  Torus(const std::vector<int32_t>& sides, const Style& style) : Torus(Plan(sides, style)) {}

  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    for (size_t number = 0; number < plan_.lanes.size(); ++number) {
      const Place place = place_at(plan_.lanes[number], step);
      if (place.is_idle) continue;
      const Transfer first = first_transfer(rank, number, place);
      const std::vector<int32_t> ranks = block_of(plan_.lanes[number], place);
      for (size_t k = 0; k < ranks.size(); ++k) {
        out.push_back(first);
        out.back().source_chunk = out.back().target_chunk = first.source_chunk + ranks[k] * plan_.chunks_per_rank();
        out.back().joins_last = k > 0;
      }
    }
  }

  void messages(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    for (size_t number = 0; number < plan_.lanes.size(); ++number) {
      const Lane& lane = plan_.lanes[number];
      const Place place = place_at(lane, step);
      if (place.is_idle) continue;
      out.push_back(first_transfer(rank, number, place));
      out.back().num_chunks *= num_ranks_in_block(lane, place.phase);
    }
  }

  int32_t next_unlike(int32_t step) const override {
    return *std::upper_bound(plan_.changes.begin(), plan_.changes.end(), step);
  }
  // Every lane's part is reduced, and gathered, in blocks of which each rank in the end holds one.
  int64_t total_chunks_sent() const override {
    const int64_t passes = plan_.style.goal == Goal::kAllReduce ? 2 : 1;
    return passes * shape().num_chunks * (shape().num_ranks - 1);
  }
  // Rings are alike everywhere, so that as many lanes come from behind as go ahead.
  int32_t num_receives(int32_t, int32_t step) const override {
    const auto is_busy = [&](const Lane& lane) { return !place_at(lane, step).is_idle; };
    return static_cast<int32_t>(std::count_if(plan_.lanes.begin(), plan_.lanes.end(), is_busy));
  }

 private:
  // All that follows from the sides and the style.
  struct Plan {
    Plan(const std::vector<int32_t>& all_sides, const Style& given) : style(given) {
      for (const int32_t side : all_sides) {
        if (side > 1) sides.push_back(side);
      }
      strides.assign(sides.size(), 1);
      for (size_t d = sides.size(); d-- > 1;) strides[d - 1] = strides[d] * sides[d];
      for (const int32_t side : sides) num_ranks *= side;
      const int32_t longest = sides.empty() ? 1 : *std::max_element(sides.begin(), sides.end());
      for (const int32_t side : sides) {
        pieces.push_back(style.is_aligned ? (2 * longest + side) / (2 * side) : 1);
        num_pieces = std::lcm(num_pieces, pieces.back());
        longest_phase = std::max(longest_phase, (side - 1) * pieces.back());
      }
      add_lanes(false);
      if (style.is_both_ways) add_lanes(true);
      set_changes();
    }

    int32_t num_steps(size_t side) const { return (sides[side] - 1) * pieces[side]; }
    int32_t chunks_per_rank() const { return static_cast<int32_t>(lanes.size()) * num_pieces; }

    void add_lanes(bool is_backwards) {
      for (size_t first = sides.size(); first-- > 0;) {
        Lane lane;
        lane.is_backwards = is_backwards;
        int32_t begin = 0;
        for (size_t k = 0; k < sides.size(); ++k) {
          lane.order.push_back((first + sides.size() - k) % sides.size());
          lane.begins.push_back(begin);
          begin += style.is_aligned ? longest_phase : num_steps(lane.order.back());
        }
        half_steps = begin;
        lanes.push_back(std::move(lane));
      }
    }

    // Where any lane's phase begins or ends, of both passes; the second one mirrors the first.
    void set_changes() {
      for (const Lane& lane : lanes) {
        for (size_t k = 0; k < lane.begins.size(); ++k) {
          for (const int32_t change : {lane.begins[k], lane.begins[k] + num_steps(lane.order[k])}) {
            if (style.goal != Goal::kAllGather) changes.push_back(change);
            if (style.goal != Goal::kReduceScatter) changes.push_back(all_steps() - change);
          }
        }
      }
      std::sort(changes.begin(), changes.end());
      changes.erase(std::unique(changes.begin(), changes.end()), changes.end());
    }

    int32_t all_steps() const { return style.goal == Goal::kAllReduce ? 2 * half_steps : half_steps; }

    Shape shape() const {
      Shape shape;
      shape.num_ranks = num_ranks;
      shape.num_steps = all_steps();
      shape.num_chunks = std::max(1, chunks_per_rank()) * num_ranks;
      shape.max_peers = static_cast<int32_t>(2 * sides.size());
      return shape;
    }

    Style style;
    std::vector<int32_t> sides, strides;  // of ranks, row-major, without sides of 1
    std::vector<int32_t> pieces;          // of a block that goes round the rings of each side
    int32_t num_ranks = 1;
    int32_t num_pieces = 1;  // of a lane's chunk of a rank, so that every block has its pieces
    int32_t longest_phase = 0;
    int32_t half_steps = 0;  // of a reduce-scatter
    std::vector<Lane> lanes;
    std::vector<int32_t> changes;
  };

  explicit Torus(Plan plan) : Schedule(plan.shape()), plan_(std::move(plan)) {}

  int32_t side(const Lane& lane, size_t phase) const { return plan_.sides[lane.order[phase]]; }

  // The all-gather passes through the phases backwards.
  Place place_at(const Lane& lane, int32_t step) const {
    const bool scatters = plan_.style.goal != Goal::kAllGather && step < plan_.half_steps;
    const int32_t at = scatters ? step : plan_.all_steps() - 1 - step;
    size_t phase = lane.begins.size() - 1;
    while (at < lane.begins[phase]) --phase;
    const int32_t num_steps = plan_.num_steps(lane.order[phase]), own = at - lane.begins[phase];
    if (own >= num_steps) return {};
    const int32_t nth = scatters ? own : num_steps - 1 - own, pieces = plan_.pieces[lane.order[phase]];
    return {false, scatters, phase, nth / pieces, nth % pieces};
  }

  int32_t coordinate(int32_t rank, size_t side) const { return rank / plan_.strides[side] % plan_.sides[side]; }

  // How many ranks' chunks are in a block of a phase.
  int32_t num_ranks_in_block(const Lane& lane, size_t phase) const {
    int32_t count = shape().num_ranks;
    for (size_t k = 0; k <= phase; ++k) count /= side(lane, k);
    return count;
  }

  // The ranks whose chunks are in such a block, less those of the first.
  std::vector<int32_t> block_of(const Lane& lane, const Place& place) const {
    std::vector<int32_t> ranks = {0};
    for (size_t k = place.phase + 1; k < lane.order.size(); ++k) {
      const size_t count = ranks.size();
      for (int32_t x = 1; x < side(lane, k); ++x) {
        for (size_t n = 0; n < count; ++n) ranks.push_back(ranks[n] + x * plan_.strides[lane.order[k]]);
      }
    }
    return ranks;
  }

  // The peer, and the piece of the first rank's chunk. Rank r owns the chunks from r * chunks_per_rank on, of which
  // each lane has num_pieces.
  Transfer first_transfer(int32_t rank, size_t number, const Place& place) const {
    const Lane& lane = plan_.lanes[number];
    const size_t along = lane.order[place.phase];
    const int32_t n = plan_.sides[along], stride = plan_.strides[along], x = coordinate(rank, along);
    const int32_t position = lane.is_backwards ? n - 1 - x : x;
    const RingChunk passed = (place.reduces ? reduce_scatter_chunk : all_gather_chunk)(position, place.ring_step, n);
    const int32_t to = wrap(x + (lane.is_backwards ? -1 : 1), n);
    int32_t owner = (lane.is_backwards ? n - 1 - passed.chunk : passed.chunk) * stride;
    for (size_t k = 0; k < place.phase; ++k) {
      owner += coordinate(rank, lane.order[k]) * plan_.strides[lane.order[k]];
    }
    const int32_t in_piece = plan_.num_pieces / plan_.pieces[along];
    const int32_t chunk =
        owner * plan_.chunks_per_rank() + static_cast<int32_t>(number) * plan_.num_pieces + place.piece * in_piece;
    return {rank + (to - x) * stride, chunk, chunk, in_piece, place.reduces};
  }

  Plan plan_;
};

}  // namespace

std::unique_ptr<Schedule> make_all_reduce_torus_nd(int32_t, const Layout& layout) {
  return std::make_unique<Torus>(layout.grid, Style{Goal::kAllReduce});
}
std::unique_ptr<Schedule> make_reduce_scatter_torus_nd(int32_t, const Layout& layout) {
  return std::make_unique<Torus>(layout.grid, Style{Goal::kReduceScatter});
}
std::unique_ptr<Schedule> make_all_gather_torus_nd(int32_t, const Layout& layout) {
  return std::make_unique<Torus>(layout.grid, Style{Goal::kAllGather});
}
std::unique_ptr<Schedule> make_all_reduce_torus_nd_aligned(int32_t, const Layout& layout) {
  return std::make_unique<Torus>(layout.grid, Style{Goal::kAllReduce, true, true});
}
std::unique_ptr<Schedule> make_reduce_scatter_torus_nd_aligned(int32_t, const Layout& layout) {
  return std::make_unique<Torus>(layout.grid, Style{Goal::kReduceScatter, true, true});
}
std::unique_ptr<Schedule> make_all_gather_torus_nd_aligned(int32_t, const Layout& layout) {
  return std::make_unique<Torus>(layout.grid, Style{Goal::kAllGather, true, true});
}
std::unique_ptr<Schedule> make_all_reduce_torus_2d(int32_t p, const Layout& layout) {
  return make_all_reduce_torus_nd(p, layout);
}
std::unique_ptr<Schedule> make_all_reduce_torus_2d_unidirectional(int32_t, const Layout& layout) {
  return std::make_unique<Torus>(layout.grid, Style{Goal::kAllReduce, false});
}

}  // namespace rostam::collectives
