// hierarchical_direct: all-reduce, reduce-scatter and all-gather over m = p / g groups of g consecutive ranks whose
// pairs have links of their own: inside a group every rank exchanges with every other one at once, between groups ranks
// of equal place form rings. All-reduce: scatter inside, ring all-reduce between, gather inside; reduce_scatter is
// the first half, all_gather the second. In one piece, u = ceil(S/p):
//   all_reduce 2 (alpha_in + m u / B_link) + 2 (m-1) (alpha_out + u / B_out); the others half of it.
// In K pieces, u = ceil(S/Kp), one behind the other by a step, the sum over the L + K - 1 steps, L = 2 + 2 (m-1) or
// half of it, of max(alpha_in + i m u / B_link, alpha_out + o u / B_out), i and o the pieces inside and between in that
// step, where messages inside and between share no link: max(2 m / B_link, 2 (m-1) / B_out) S/p for large S and K.
// Chunks are numbered rank * K + piece: rank r owns those from r K on.
#include <algorithm>

#include "collectives/ring_chunks.h"
#include "collectives/schedule.h"
#include "sim/errors.h"

namespace rostam::collectives {

namespace {

enum class Goal { kReduceScatter, kAllGather, kAllReduce };

// The steps of one piece: a scatter inside or none, those of the rings, a gather inside or none.
struct Phases {
  Phases(Goal goal, int32_t g, int32_t m) {
    scatters = goal != Goal::kAllGather && g > 1;
    gathers = goal != Goal::kReduceScatter && g > 1;
    between = (goal == Goal::kAllReduce ? 2 : 1) * (m - 1);
  }
  int32_t num_steps() const { return scatters + between + gathers; }
  bool is_scatter(int32_t step) const { return scatters && step == 0; }
  bool is_gather(int32_t step) const { return gathers && step == num_steps() - 1; }
  bool is_inside(int32_t step) const { return is_scatter(step) || is_gather(step); }

  bool scatters = false, gathers = false;
  int32_t between = 0;
};

Shape shape_of(int32_t p, int32_t num_pieces, const Phases& phases) {
  Shape shape;
  shape.num_ranks = p;
  shape.num_steps = p > 1 ? phases.num_steps() + num_pieces - 1 : 0;
  shape.num_chunks = num_pieces * p;
  shape.is_synchronous = true;
  return shape;
}

class HierarchicalDirect : public Schedule {
 public:
  HierarchicalDirect(int32_t p, int32_t g, int32_t num_pieces, Goal goal)
      : Schedule(shape_of(p, num_pieces, Phases(goal, g, p / g))),
        goal_(goal),
        g_(g),
        m_(p / g),
        pieces_(num_pieces),
        phases_(goal, g, p / g) {}

  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    const int32_t first = rank / g_ * g_, place = rank % g_;
    for (int32_t shift = 1; shift < g_; ++shift) {
      const int32_t to = wrap(place + shift, g_);
      const size_t begin = out.size();
      for (int32_t piece = first_piece(step); piece <= last_piece(step); ++piece) {
        if (phases_.is_scatter(step - piece)) add_block(first + to, to, piece, true, out);
        if (phases_.is_gather(step - piece)) add_block(first + to, place, piece, false, out);
      }
      join_from(begin, out);
    }
    const size_t begin = out.size();
    for (int32_t piece = first_piece(step); piece <= last_piece(step); ++piece) {
      if (phases_.is_inside(step - piece)) continue;
      const RingChunk passed = ring_chunk(rank / g_, step - piece - (phases_.scatters ? 1 : 0));
      add(wrap(rank / g_ + 1, m_) * g_ + place, passed.chunk * g_ + place, piece, passed.reduces, out);
    }
    join_from(begin, out);
  }

  void messages(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    const int32_t first = rank / g_ * g_, place = rank % g_, inside = num_inside(step);
    const int32_t between = last_piece(step) - first_piece(step) + 1 - inside;
    for (int32_t shift = 1; shift < g_ && inside > 0; ++shift) {
      out.push_back({first + wrap(place + shift, g_), 0, 0, inside * m_, true});
    }
    if (between > 0) out.push_back({wrap(rank / g_ + 1, m_) * g_ + place, 0, 0, between, true});
  }

  int64_t total_chunks_sent() const override {
    const int64_t inside = int64_t{phases_.scatters + phases_.gathers} * (g_ - 1) * m_;
    return int64_t{pieces_} * shape().num_ranks * (inside + phases_.between);
  }
  int32_t num_receives(int32_t, int32_t step) const override {
    const int32_t inside = num_inside(step), all = last_piece(step) - first_piece(step) + 1;
    return (inside > 0 ? g_ - 1 : 0) + (all > inside);
  }

 private:
  // Piece k takes its step 0 in step k; these are the pieces that are under way.
  int32_t first_piece(int32_t step) const { return std::max(0, step - phases_.num_steps() + 1); }
  int32_t last_piece(int32_t step) const { return std::min(pieces_ - 1, step); }
  int32_t num_inside(int32_t step) const {
    const auto is_under_way = [&](int32_t piece) { return piece >= 0 && piece < pieces_; };
    return (phases_.scatters && is_under_way(step)) + (phases_.gathers && is_under_way(step - phases_.num_steps() + 1));
  }

  RingChunk ring_chunk(int32_t group, int32_t step) const {
    if (goal_ == Goal::kAllReduce) return all_reduce_chunk(group, step, m_);
    return goal_ == Goal::kAllGather ? all_gather_chunk(group, step, m_) : reduce_scatter_chunk(group, step, m_);
  }

  // The chunks that ranks of a place own, of all groups.
  void add_block(int32_t peer, int32_t place, int32_t piece, bool reduces, std::vector<Transfer>& out) const {
    for (int32_t group = 0; group < m_; ++group) add(peer, group * g_ + place, piece, reduces, out);
  }
  void add(int32_t peer, int32_t owner, int32_t piece, bool reduces, std::vector<Transfer>& out) const {
    const int32_t chunk = owner * pieces_ + piece;
    out.push_back({peer, chunk, chunk, 1, reduces});
  }
  static void join_from(size_t begin, std::vector<Transfer>& out) {
    for (size_t k = begin + 1; k < out.size(); ++k) out[k].joins_last = true;
  }

  Goal goal_;
  int32_t g_, m_, pieces_;
  Phases phases_;
};

std::unique_ptr<Schedule> make_hierarchical_direct(const char* collective, int32_t p, const Layout& layout, Goal goal) {
  const int32_t g = layout.group_sizes.size() == 1 ? layout.group_sizes[0] : 0;
  if (g < 1 || p % g != 0) {
    ROSTAM_THROW(ConfigError, "hierarchical_direct " << collective << " over " << p << " ranks with group_size " << g
                                                     << "; the group size must divide the ranks");
  }
  return std::make_unique<HierarchicalDirect>(p, g, layout.num_pieces, goal);
}

}  // namespace

std::unique_ptr<Schedule> make_all_reduce_hierarchical_direct(int32_t p, const Layout& layout) {
  return make_hierarchical_direct("all_reduce", p, layout, Goal::kAllReduce);
}
std::unique_ptr<Schedule> make_reduce_scatter_hierarchical_direct(int32_t p, const Layout& layout) {
  return make_hierarchical_direct("reduce_scatter", p, layout, Goal::kReduceScatter);
}
std::unique_ptr<Schedule> make_all_gather_hierarchical_direct(int32_t p, const Layout& layout) {
  return make_hierarchical_direct("all_gather", p, layout, Goal::kAllGather);
}

}  // namespace rostam::collectives
