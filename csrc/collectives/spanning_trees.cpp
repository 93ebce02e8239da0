// spanning_trees: all-gather, reduce-scatter and all-reduce along trees that a packing chose (tree_packing.h), k of
// every rank with an equal part of what it owns: down them from their roots, or up them to their roots with sums on the
// way. A tree says in which stage each of its links is busy; of Z stages, and in K pieces of the buffer one behind the
// other, piece j goes over a link of stage s in step s + j (all_reduce: up in Z - 1 - s + j, down in Z + s + j), so
// that with u = ceil(S / (p k K)), and with n_l(s) the trees over link l in stage s,
//   sum over the Z + K - 1 (all_reduce: 2 Z + K - 1) steps of alpha + max over l of (sum of n_l(s) under way) u / B_l:
// about (trees over the fullest link) S / (p k B) for large S and K, the least there is where the packing is.
// Without trees every rank's are the links to all others: `direct`.
// Chunks are numbered (root K + piece) k + tree: rank r owns those from r K k on.
// Source: Edmonds (1973) for the trees; Zhao et al., ForestColl: Throughput-optimal collective communications on
// heterogeneous network fabrics (2024), for collectives along them; stages: own.
#include <algorithm>

#include "collectives/schedule.h"
#include "collectives/wrap.h"
#include "sim/errors.h"

namespace rostam::collectives {

namespace {

enum class Goal { kReduceScatter, kAllGather, kAllReduce };

// A tree's link in a stage of all: which unit of the buffer it carries, tree number `unit` of all roots.
struct Hop {
  int32_t peer = 0;
  int32_t stage = 0;
  int32_t unit = 0;
  bool reduces = false;
};

struct Tree {
  std::vector<int32_t> parent;  // the root's is the root
  std::vector<int32_t> stage;   // of the link from a rank's parent
};

// Throws: ConfigError unless it is a tree of all ranks that grows from `root` stage by stage.
Tree read_tree(const std::vector<int32_t>& row, int32_t p, int32_t root) {
  const auto size = static_cast<size_t>(p);
  const auto fail = [&](const char* why) {
    ROSTAM_THROW(ConfigError, "a spanning tree of rank " << root << " over " << p << " ranks " << why
                                                         << "; it must hold each rank's parent, the root's being the"
                                                            " root, then the stage of each rank's link, which comes"
                                                            " after its parent's");
  };
  if (row.size() != 2 * size) fail("has another number of entries");
  Tree tree{{row.begin(), row.begin() + p}, {row.begin() + p, row.end()}};
  for (int32_t rank = 0; rank < p; ++rank) {
    const int32_t above = tree.parent[static_cast<size_t>(rank)], stage = tree.stage[static_cast<size_t>(rank)];
    if (above < 0 || above >= p || (above == rank) != (rank == root)) fail("has parents that make no tree");
    if (rank == root) continue;
    const bool is_late = above == root || stage > tree.stage[static_cast<size_t>(above)];
    if (stage < 0 || !is_late) fail("has stages out of order");  // which a circle of parents has, too
  }
  return tree;
}

std::vector<Tree> read_trees(const std::vector<std::vector<int32_t>>& rows, size_t first, size_t count, int32_t p) {
  std::vector<Tree> trees;
  const auto per_root = static_cast<int32_t>(count / static_cast<size_t>(p));
  for (size_t k = 0; k < count; ++k) trees.push_back(read_tree(rows[first + k], p, static_cast<int32_t>(k) / per_root));
  return trees;
}

std::vector<Tree> stars(int32_t p) {
  std::vector<Tree> trees;
  for (int32_t root = 0; root < p; ++root) {
    trees.push_back(
        {std::vector<int32_t>(static_cast<size_t>(p), root), std::vector<int32_t>(static_cast<size_t>(p), 0)});
  }
  return trees;
}

int32_t num_stages(const std::vector<Tree>& trees) {
  int32_t last = 0;
  for (const Tree& tree : trees) last = std::max(last, *std::max_element(tree.stage.begin(), tree.stage.end()));
  return last + 1;
}

class SpanningTrees : public Schedule {
 public:
  // Every hop of every rank, by peer.
  struct Plan {
    Plan(int32_t num_ranks, int32_t num_pieces) : p(num_ranks), pieces(num_pieces), out(size()), in(size()) {}

    void add(int32_t src, int32_t dst, int32_t stage, int32_t unit, bool reduces) {
      out[static_cast<size_t>(src)].push_back({dst, stage, unit, reduces});
      in[static_cast<size_t>(dst)].push_back({src, stage, unit, reduces});
      stages = std::max(stages, stage + 1);
      changes.push_back(stage);
      changes.push_back(stage + pieces);
      ++num_hops;
    }
    void sort() {
      for (auto* hops : {&out, &in}) {
        for (std::vector<Hop>& own : *hops) {
          std::stable_sort(own.begin(), own.end(), [](const Hop& a, const Hop& b) { return a.peer < b.peer; });
        }
      }
      std::sort(changes.begin(), changes.end());
      changes.erase(std::unique(changes.begin(), changes.end()), changes.end());
    }
    size_t size() const { return static_cast<size_t>(p); }
    Shape shape() const {
      Shape shape;
      shape.num_ranks = p;
      shape.num_steps = p > 1 ? stages + pieces - 1 : 0;
      shape.num_chunks = p * per_root * pieces;
      shape.is_synchronous = true;
      for (const std::vector<Hop>& own : out) {
        int32_t peers = 0;
        for (size_t k = 0; k < own.size(); ++k) peers += k == 0 || own[k].peer != own[k - 1].peer;
        shape.max_peers = std::max(shape.max_peers, peers);
      }
      return shape;
    }

    int32_t p, pieces;
    int32_t per_root = 1;
    int32_t stages = 0;
    int64_t num_hops = 0;
    std::vector<std::vector<Hop>> out, in;
    std::vector<int32_t> changes;  // steps in which a link begins or ends to be busy
  };

  explicit SpanningTrees(Plan plan) : Schedule(plan.shape()), plan_(std::move(plan)) {}

  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    int32_t last_peer = -1;
    for (const Hop& hop : plan_.out[static_cast<size_t>(rank)]) {
      if (!is_under_way(hop, step)) continue;
      const int32_t root = hop.unit / plan_.per_root, tree = hop.unit % plan_.per_root;
      const int32_t chunk = (root * plan_.pieces + step - hop.stage) * plan_.per_root + tree;
      out.push_back({hop.peer, chunk, chunk, 1, hop.reduces, hop.peer == last_peer});
      last_peer = hop.peer;
    }
  }
  int32_t next_unlike(int32_t step) const override {
    const auto next = std::upper_bound(plan_.changes.begin(), plan_.changes.end(), step);
    return next == plan_.changes.end() ? shape().num_steps : std::min(*next, shape().num_steps);
  }
  int64_t total_chunks_sent() const override { return plan_.num_hops * plan_.pieces; }
  int32_t num_receives(int32_t rank, int32_t step) const override {
    int32_t count = 0, last_peer = -1;
    for (const Hop& hop : plan_.in[static_cast<size_t>(rank)]) {
      if (hop.peer == last_peer || !is_under_way(hop, step)) continue;
      ++count;
      last_peer = hop.peer;
    }
    return count;
  }

 private:
  bool is_under_way(const Hop& hop, int32_t step) const { return step >= hop.stage && step < hop.stage + plan_.pieces; }

  Plan plan_;
};

std::unique_ptr<Schedule> make_trees(int32_t p, const Layout& layout, Goal goal) {
  const size_t passes = goal == Goal::kAllReduce ? 2 : 1, unit = static_cast<size_t>(p) * passes;
  if (layout.trees.size() % unit != 0) {
    ROSTAM_THROW(ConfigError, layout.trees.size() << " spanning trees over " << p << " ranks; every rank must have as"
                                                  << (passes == 2 ? " many up, and as many down" : " many"));
  }
  SpanningTrees::Plan plan(p, layout.num_pieces);
  const size_t count = layout.trees.size() / passes;
  const bool is_given = count > 0;
  plan.per_root = is_given ? static_cast<int32_t>(count / static_cast<size_t>(p)) : 1;
  int32_t begin = 0;
  if (goal != Goal::kAllGather) {
    const std::vector<Tree> up = is_given ? read_trees(layout.trees, 0, count, p) : stars(p);
    begin = num_stages(up);
    for (size_t k = 0; k < up.size(); ++k) {
      for (int32_t rank = 0; rank < p; ++rank) {
        const int32_t above = up[k].parent[static_cast<size_t>(rank)];
        if (above == rank) continue;
        plan.add(rank, above, begin - 1 - up[k].stage[static_cast<size_t>(rank)], static_cast<int32_t>(k), true);
      }
    }
  }
  if (goal != Goal::kReduceScatter) {
    const std::vector<Tree> down = is_given ? read_trees(layout.trees, (passes - 1) * count, count, p) : stars(p);
    for (size_t k = 0; k < down.size(); ++k) {
      for (int32_t rank = 0; rank < p; ++rank) {
        const int32_t above = down[k].parent[static_cast<size_t>(rank)];
        if (above == rank) continue;
        plan.add(above, rank, begin + down[k].stage[static_cast<size_t>(rank)], static_cast<int32_t>(k), false);
      }
    }
  }
  plan.sort();
  return std::make_unique<SpanningTrees>(std::move(plan));
}

}  // namespace

std::unique_ptr<Schedule> make_all_reduce_spanning_trees(int32_t p, const Layout& layout) {
  return make_trees(p, layout, Goal::kAllReduce);
}
std::unique_ptr<Schedule> make_reduce_scatter_spanning_trees(int32_t p, const Layout& layout) {
  return make_trees(p, layout, Goal::kReduceScatter);
}
std::unique_ptr<Schedule> make_all_gather_spanning_trees(int32_t p, const Layout& layout) {
  return make_trees(p, layout, Goal::kAllGather);
}

}  // namespace rostam::collectives
