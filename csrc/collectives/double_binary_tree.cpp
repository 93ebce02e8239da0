// Two binary trees over all ranks, half of the buffer each, every rank inside one being a leaf of the other (but rank 0
// where p is odd): partial sums go up a tree and results down again, in n pieces one behind the other. A rank at depth
// d of a tree of depth D sends piece c up in step c + D - d and down in step c + D + d, so that n + 2 D - 1 steps do
// it; in most of them the busiest rank sends up and to two children in one tree and up in the other, 4 chunks of S/2n:
// about (n + 2 D - 1) (alpha + 2 S/n/B).
//
// Trees: a rank's parent clears the lowest bit that is set and sets the next one, or only clears it where that is no
// rank; the other tree is the same numbered backwards (p even) or by one on (p odd).
//
// Source: Sanders, Speck, Traeff, Two-tree algorithms for full bandwidth broadcast, reduction and scan, Parallel
// Computing 35 (2009); NCCL src/graph/trees.cc has these trees over servers.
#include <algorithm>

#include "collectives/schedule.h"
#include "collectives/wrap.h"

namespace rostam::collectives {

namespace {

int32_t parent_of(int32_t rank, int32_t p) {
  const int32_t lowest = rank & -rank, cleared = rank - lowest;
  const int64_t above = cleared | (int64_t{lowest} << 1);
  return above < p ? static_cast<int32_t>(above) : cleared;
}

struct Tree {
  explicit Tree(int32_t p) : parent(static_cast<size_t>(p), -1), children(parent.size()), depth(parent.size(), 0) {}

  void set_parent(int32_t rank, int32_t to) {
    parent[static_cast<size_t>(rank)] = to;
    children[static_cast<size_t>(to)].push_back(rank);
  }
  void set_depths(int32_t rank) {
    for (const int32_t child : children[static_cast<size_t>(rank)]) {
      depth[static_cast<size_t>(child)] = depth[static_cast<size_t>(rank)] + 1;
      set_depths(child);
    }
  }

  std::vector<int32_t> parent;
  std::vector<std::vector<int32_t>> children;
  std::vector<int32_t> depth;
};

// The trees of all ranks, and the depth of the deepest.
struct Trees {
  explicit Trees(int32_t p) : both{Tree(p), Tree(p)} {
    const auto other = [p](int32_t rank) { return p % 2 == 0 ? p - 1 - rank : wrap(rank + 1, p); };
    for (int32_t rank = 1; rank < p; ++rank) {
      both[0].set_parent(rank, parent_of(rank, p));
      both[1].set_parent(other(rank), other(parent_of(rank, p)));
    }
    both[0].set_depths(0);
    both[1].set_depths(other(0));
    for (const Tree& tree : both) depth = std::max(depth, *std::max_element(tree.depth.begin(), tree.depth.end()));
  }
  std::vector<Tree> both;
  int32_t depth = 0;
};

class DoubleBinaryTree : public Schedule {
 public:
  DoubleBinaryTree(Trees trees, Shape shape) : Schedule(shape), trees_(std::move(trees)) {}

  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    for (int32_t t = 0; t < 2; ++t) {
      const Tree& tree = trees_.both[static_cast<size_t>(t)];
      const int32_t depth = tree.depth[static_cast<size_t>(rank)], parent = tree.parent[static_cast<size_t>(rank)];
      const int32_t up = step - (trees_.depth - depth), down = step - (trees_.depth + depth);
      if (parent >= 0 && is_piece(up)) out.push_back({parent, chunk(up, t), chunk(up, t), 1, true});
      if (!is_piece(down)) continue;
      for (const int32_t child : tree.children[static_cast<size_t>(rank)]) {
        out.push_back({child, chunk(down, t), chunk(down, t), 1, false});
      }
    }
  }

  int64_t total_chunks_sent() const override { return int64_t{2} * shape().num_chunks * (shape().num_ranks - 1); }

  int32_t num_receives(int32_t rank, int32_t step) const override {
    int32_t count = 0;
    for (const Tree& tree : trees_.both) {
      const int32_t depth = tree.depth[static_cast<size_t>(rank)];
      const auto num_children = static_cast<int32_t>(tree.children[static_cast<size_t>(rank)].size());
      if (is_piece(step - (trees_.depth - depth - 1))) count += num_children;
      if (depth > 0 && is_piece(step - (trees_.depth + depth - 1))) ++count;
    }
    return count;
  }

 private:
  bool is_piece(int32_t number) const { return number >= 0 && number < shape().num_chunks / 2; }
  int32_t chunk(int32_t piece, int32_t tree) const { return tree * (shape().num_chunks / 2) + piece; }

  Trees trees_;
};

}  // namespace

std::unique_ptr<Schedule> make_all_reduce_double_binary_tree(int32_t p, const Layout& layout) {
  Trees trees(p);
  Shape shape;
  shape.num_ranks = p;
  shape.num_steps = p > 1 ? layout.num_pieces + 2 * trees.depth - 1 : 0;
  shape.num_chunks = 2 * layout.num_pieces;
  return std::make_unique<DoubleBinaryTree>(std::move(trees), shape);
}

}  // namespace rostam::collectives
