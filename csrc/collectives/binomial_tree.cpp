// Binomial trees rooted at rank 0 on the whole buffer.
// all_reduce = reduce then broadcast: 2 ceil(log2 p) (alpha + S/B); either: ceil(log2 p) (alpha + S/B).
#include "collectives/schedule.h"

namespace rostam::collectives {

namespace {

int32_t ceil_log2(int32_t p) {
  int32_t levels = 0;
  while ((int64_t{1} << levels) < p) ++levels;
  return levels;
}

Shape tree_shape(int32_t p, int32_t num_steps) {
  Shape shape;
  shape.num_ranks = p;
  shape.num_steps = num_steps;
  shape.num_chunks = 1;
  shape.is_synchronous = true;  // otherwise subtrees cut short by p would run ahead into busy ports
  return shape;
}

// In the reduce step of distance d, rank r sends to r - d if r mod 2d == d; the broadcast runs backwards.
bool is_child(int32_t rank, int32_t distance) { return rank % (2 * distance) == distance; }
bool is_parent(int32_t rank, int32_t distance, int32_t p) { return rank % (2 * distance) == 0 && rank + distance < p; }

class TreeAllReduce : public Schedule {
 public:
  explicit TreeAllReduce(int32_t p) : Schedule(tree_shape(p, 2 * ceil_log2(p))), levels_(ceil_log2(p)) {}
  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    const int32_t distance = this->distance(step);
    if (step < levels_) {
      if (is_child(rank, distance)) out.push_back({rank - distance, 0, 0, 1, true});
    } else if (is_parent(rank, distance, shape().num_ranks)) {
      out.push_back({rank + distance, 0, 0, 1, false});
    }
  }
  int64_t total_chunks_sent() const override { return int64_t{2} * (shape().num_ranks - 1); }
  int32_t num_receives(int32_t rank, int32_t step) const override {
    const int32_t distance = this->distance(step);
    return step < levels_ ? is_parent(rank, distance, shape().num_ranks) : is_child(rank, distance);
  }

 private:
  int32_t distance(int32_t step) const { return 1 << (step < levels_ ? step : 2 * levels_ - 1 - step); }
  int32_t levels_;
};

class TreeBroadcast : public Schedule {
 public:
  explicit TreeBroadcast(int32_t p) : Schedule(tree_shape(p, ceil_log2(p))) {}
  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    const int32_t distance = 1 << (shape().num_steps - 1 - step);
    if (is_parent(rank, distance, shape().num_ranks)) out.push_back({rank + distance, 0, 0, 1, false});
  }
  int64_t total_chunks_sent() const override { return shape().num_ranks - 1; }
  int32_t num_receives(int32_t rank, int32_t step) const override {
    return is_child(rank, 1 << (shape().num_steps - 1 - step));
  }
};

// The same messages backwards.
class TreeReduce : public Schedule {
 public:
  explicit TreeReduce(int32_t p) : Schedule(tree_shape(p, ceil_log2(p))) {}
  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    if (is_child(rank, 1 << step)) out.push_back({rank - (1 << step), 0, 0, 1, true});
  }
  int64_t total_chunks_sent() const override { return shape().num_ranks - 1; }
  int32_t num_receives(int32_t rank, int32_t step) const override {
    return is_parent(rank, 1 << step, shape().num_ranks);
  }
};

}  // namespace

std::unique_ptr<Schedule> make_all_reduce_binomial_tree(int32_t p, const Layout&) {
  return std::make_unique<TreeAllReduce>(p);
}
std::unique_ptr<Schedule> make_broadcast_binomial_tree(int32_t p, const Layout&) {
  return std::make_unique<TreeBroadcast>(p);
}

std::unique_ptr<Schedule> make_reduce_binomial_tree(int32_t p, const Layout&) {
  return std::make_unique<TreeReduce>(p);
}

}  // namespace rostam::collectives
