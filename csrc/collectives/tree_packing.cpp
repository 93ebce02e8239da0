#include "collectives/tree_packing.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "collectives/arborescence.h"
#include "sim/interrupt.h"

namespace rostam::collectives {

namespace {

constexpr int kRounds = 12;                      // of laying all trees anew, for each exponent
constexpr double kExponents[] = {2, 6, 16, 40};  // own choice: the later ones look at the fullest links alone
constexpr double kBetter = 1.004;                // what more trees must gain, as a factor of the fullest load
constexpr double kSlack = 1 + 1e-9;

using Parents = std::vector<int32_t>;

size_t place(int64_t number) { return static_cast<size_t>(number); }

// The ways, which one is of a pair, and which go over a link.
struct Index {
  explicit Index(const TreeWays& ways)
      : given(ways), of_pair(place(ways.num_ranks) * place(ways.num_ranks), -1), over(ways.capacity.size()) {
    for (size_t k = 0; k < ways.ways.size(); ++k) {
      of_pair[pair(ways.ways[k].src, ways.ways[k].dst)] = static_cast<int32_t>(k);
      for (const int32_t link : ways.ways[k].links) over[place(link)].push_back(static_cast<int32_t>(k));
    }
  }

  size_t pair(int32_t src, int32_t dst) const { return place(int64_t{src} * given.num_ranks + dst); }
  const TreeWay& way(int32_t src, int32_t dst) const { return given.ways[place(of_pair[pair(src, dst)])]; }

  // Seconds that the links into some rank need for each chunk that it gathers: no packing takes less.
  double bound() const {
    double most = 0;
    for (int32_t rank = 0; rank < given.num_ranks; ++rank) {
      std::vector<uint8_t> is_counted(given.capacity.size(), 0);
      double into = 0;
      for (const TreeWay& way : given.ways) {
        if (way.dst != rank) continue;
        for (const int32_t link : way.links) {
          if (is_counted[place(link)]++ == 0) into += given.capacity[place(link)];
        }
      }
      if (into > 0) most = std::max(most, (given.num_ranks - 1) / into);
    }
    return most;
  }

  const TreeWays& given;
  std::vector<int32_t> of_pair;  // -1 for none
  std::vector<std::vector<int32_t>> over;
};

// A packing of k trees of every root, as it is laid.
class Packing {
 public:
  Packing(const Index& index, int32_t per_root)
      : index_(&index),
        per_root_(per_root),
        load_(index.given.capacity.size(), 0.0),
        costs_{index.given.num_ranks,
               std::vector<double>(index.of_pair.size(), std::numeric_limits<double>::infinity())},
        trees_(place(index.given.num_ranks) * place(per_root)) {}

  // Lays all trees, until no link is fuller than `bound` asks for; false where there are none.
  bool lay(double bound) {
    begin_round(kExponents[0]);
    for (int32_t turn = 0; turn < per_root_; ++turn) {
      for (int32_t root = 0; root < index_->given.num_ranks; ++root) {
        if (!lay_tree(root * per_root_ + turn)) return false;
      }
    }
    best_ = trees_;
    least_ = fullest();
    for (const double exponent : kExponents) {
      for (int round = 0; round < kRounds && seconds() > bound * kSlack; ++round) {
        begin_round(exponent);
        if (!lay_anew()) break;
      }
    }
    return true;
  }

  // Seconds of the fullest link for each chunk that a rank gathers from each other.
  double seconds() const { return least_ / per_root_; }
  const std::vector<Parents>& trees() const { return best_; }

 private:
  double fullest() const {
    double most = 0;
    for (size_t link = 0; link < load_.size(); ++link)
      most = std::max(most, load_[link] / index_->given.capacity[link]);
    return most;
  }

  void begin_round(double exponent) {
    exponent_ = exponent;
    const double most = fullest();
    fullest_ = most > 0 ? most : 1;
    for (const TreeWay& way : index_->given.ways) set_cost(way);
  }

  // False where no tree changed.
  bool lay_anew() {
    bool has_changed = false;
    for (size_t number = 0; number < trees_.size(); ++number) {
      const Parents before = trees_[number];
      add(before, -1);
      lay_tree(static_cast<int32_t>(number));
      has_changed = has_changed || trees_[number] != before;
    }
    const double most = fullest();
    if (most < least_ / kSlack) {
      least_ = most;
      best_ = trees_;
    }
    return has_changed;
  }

  bool lay_tree(int32_t number) {
    Parents tree = cheapest_tree(costs_, number / per_root_);
    if (tree.empty()) return false;
    add(tree, 1);
    trees_[place(number)] = std::move(tree);
    return true;
  }

  // What one more chunk raises the sum of (load / capacity)^exponent by, in units of the fullest link's; with a little
  // for the way itself, so that of equals the fewest links are taken.
  void set_cost(const TreeWay& way) {
    double cost = 0;
    for (size_t k = 0; k < way.links.size(); ++k) {
      const double unit = index_->given.capacity[place(way.links[k])] * fullest_, load = load_[place(way.links[k])];
      const double added = std::pow((load + way.shares[k]) / unit, exponent_) - std::pow(load / unit, exponent_);
      cost += added + 1e-9 * way.shares[k] / unit;
    }
    costs_.at(way.src, way.dst) = cost;
  }

  void add(const Parents& tree, int32_t sign) {
    for (int32_t rank = 0; rank < index_->given.num_ranks; ++rank) {
      const int32_t above = tree[place(rank)];
      if (above == rank) continue;
      const TreeWay& used = index_->way(above, rank);
      for (size_t k = 0; k < used.links.size(); ++k) {
        double& load = load_[place(used.links[k])];
        load = std::max(0.0, load + sign * used.shares[k]);
      }
    }
    for (int32_t rank = 0; rank < index_->given.num_ranks; ++rank) {
      if (tree[place(rank)] == rank) continue;
      for (const int32_t link : index_->way(tree[place(rank)], rank).links) {
        for (const int32_t other : index_->over[place(link)]) set_cost(index_->given.ways[place(other)]);
      }
    }
  }

  const Index* index_;
  int32_t per_root_;
  std::vector<double> load_;  // chunks
  CostMatrix costs_;          // of one more chunk over each pair's way, in this round
  double exponent_ = 1, fullest_ = 1;
  std::vector<Parents> trees_, best_;
  double least_ = 0;
};

// A link of a tree that waits for its stage. height: links below it, one after the other.
struct Job {
  size_t tree = 0;
  int32_t rank = 0;  // below the link
  int32_t height = 0;
};

int32_t height_of(const Parents& tree, int32_t rank) {
  poll_interrupt();
  int32_t height = 0;
  for (int32_t below = 0; below < static_cast<int32_t>(tree.size()); ++below) {
    if (below != rank && tree[place(below)] == rank) height = std::max(height, 1 + height_of(tree, below));
  }
  return height;
}

// Stages by list scheduling: those with most links below them first.
class Stages {
 public:
  Stages(const Index& index, const std::vector<Parents>& trees) : index_(index), given_(index.given), trees_(trees) {
    stage_.assign(trees.size(), std::vector<int32_t>(place(given_.num_ranks), -1));
    for (size_t tree = 0; tree < trees.size(); ++tree) {
      for (int32_t rank = 0; rank < given_.num_ranks; ++rank) {
        const int32_t above = trees[tree][place(rank)];
        if (above == rank) {
          stage_[tree][place(rank)] = 0;
          continue;
        }
        jobs_.push_back({tree, rank, height_of(trees[tree], rank)});
        const TreeWay& way = index_.way(above, rank);
        for (size_t k = 0; k < way.links.size(); ++k) {
          quantum_ = std::max(quantum_, way.shares[k] / given_.capacity[place(way.links[k])]);
        }
      }
    }
    std::stable_sort(jobs_.begin(), jobs_.end(), [](const Job& a, const Job& b) { return a.height > b.height; });
  }

  std::vector<std::vector<int32_t>> assign() {
    for (int32_t stage = 0; !jobs_.empty(); ++stage) {
      std::vector<double> busy(given_.capacity.size(), 0.0);  // seconds
      std::vector<Job> waiting;
      for (const Job& job : jobs_) {
        if (!starts(job, stage, busy)) waiting.push_back(job);
      }
      jobs_ = std::move(waiting);
    }
    return std::move(stage_);
  }

 private:
  bool starts(const Job& job, int32_t stage, std::vector<double>& busy) {
    poll_();
    const Parents& tree = trees_[job.tree];
    const int32_t above = tree[place(job.rank)];
    const bool is_root = tree[place(above)] == above;
    const int32_t came = stage_[job.tree][place(above)];
    if (!is_root && (came < 0 || came >= stage)) return false;
    const TreeWay& way = index_.way(above, job.rank);
    const auto seconds = [&](size_t k) { return way.shares[k] / given_.capacity[place(way.links[k])]; };
    for (size_t k = 0; k < way.links.size(); ++k) {
      if (busy[place(way.links[k])] + seconds(k) > quantum_ * kSlack) return false;
    }
    for (size_t k = 0; k < way.links.size(); ++k) busy[place(way.links[k])] += seconds(k);
    stage_[job.tree][place(job.rank)] = stage;
    return true;
  }

  const Index& index_;
  const TreeWays& given_;
  const std::vector<Parents>& trees_;
  std::vector<Job> jobs_;
  std::vector<std::vector<int32_t>> stage_;
  double quantum_ = 0;  // of a stage [s]
  InterruptPoll poll_;
};

}  // namespace

std::optional<std::vector<std::vector<int32_t>>> pack_trees(const TreeWays& ways, int32_t most_trees) {
  const Index index(ways);
  const double bound = index.bound();
  std::optional<Packing> best;
  const int32_t most = std::max(1, most_trees / std::max(1, ways.num_ranks));
  for (int32_t per_root = 1; per_root <= most; ++per_root) {
    if (best.has_value() && best->seconds() <= bound * kBetter) break;
    Packing packing(index, per_root);
    if (!packing.lay(bound)) return std::nullopt;
    if (!best.has_value() || packing.seconds() * kBetter < best->seconds()) best.emplace(std::move(packing));
  }
  std::vector<std::vector<int32_t>> rows = best->trees();
  const std::vector<std::vector<int32_t>> stages = Stages(index, best->trees()).assign();
  for (size_t tree = 0; tree < rows.size(); ++tree) {
    rows[tree].insert(rows[tree].end(), stages[tree].begin(), stages[tree].end());
  }
  return rows;
}

}  // namespace rostam::collectives
