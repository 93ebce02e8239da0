// hammingmesh: boards of a x b accelerators that forward on a 2D mesh of traces; x by y boards. The ends of every
// accelerator row of a board (W, E) go to switched row networks, those of every column (N, S) to column networks.
// Wirings of a dimension: board_row (one switch for all lines of a row of boards), accelerator_row (one switch a line),
// tree (two or three levels of switches a line, tree.h), wrap (a single board: its two ends joined by a cable, no
// switch). Numbering: row-major within a board, boards row-major (MODEL C11), then the switches of row networks line by
// line, leaves before spines before cores, then those of column networks. Distance: rows and columns add up, except
// that a network shared by all lines of a board also moves a packet across lines; see Mesh. Source: HammingMesh,
// sections III and IV-C.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "fabric/registry.h"
#include "fabric/tree.h"

namespace rostam::fabric {

namespace {

enum class Wiring { kWrap = 0, kBoardRow = 1, kAcceleratorRow = 2, kTree = 3 };

// Where something lies along one dimension: which board, and where on it.
struct Place {
  int32_t board = 0;
  int32_t at = 0;
};

// One dimension of the mesh: rows (running along x) or columns (along y).
struct Axis {
  Axis(const Params& params, size_t dim);

  int32_t size;    // accelerators of a board
  int32_t boards;  // boards in line
  Wiring wiring;
  int32_t leaf_boards;  // boards whose two ends go to one leaf; all of them without a tree
  Tree tree;            // of one network, its switches counted from 0; its ports: both ends of a board, board by board

  bool is_shared() const { return wiring == Wiring::kBoardRow; }
  int32_t num_switches() const { return wiring == Wiring::kWrap ? 0 : tree.num_switches(); }  // of one network
  // All downlinks of a switch to a lower one carry equal loads.
  bool is_even() const { return tree.are_leaves_even() && tree.are_pods_even(); }
  int32_t leaf_of(int32_t board) const { return board / leaf_boards; }

  // Hops to the nearer end of the board.
  int32_t to_edge(int32_t at) const { return std::min(at, size - 1 - at); }
  // Cables from the end of one board over the network to the end of another, or back to the same.
  int32_t across(int32_t board, int32_t other) const { return 2 + tree.hops_between(leaf_of(board), leaf_of(other)); }
  // Cables from a switch of a network to the end of a board.
  int32_t down(int32_t slot, int32_t board) const { return tree.switch_distance(slot, 2 * board); }
  // Hops along one line, which the networks of this dimension never leave.
  int32_t along(Place from, Place to) const {
    const int32_t gap = std::abs(from.at - to.at);
    if (wiring == Wiring::kWrap) return std::min(gap, size - gap);
    const int32_t outside = to_edge(from.at) + across(from.board, to.board) + to_edge(to.at);
    return from.board == to.board ? std::min(gap, outside) : outside;
  }
};

TreeShape network_shape(const Params& params, size_t dim) {
  return {2 * params.integers("leaf_boards").at(dim), params.integers("leaf_up").at(dim), params.integer("radix"),
          params.integers("levels").at(dim), params.integers("num_spines").at(dim)};
}

Axis::Axis(const Params& params, size_t dim)
    : size(params.integers("board").at(dim)),
      boards(params.integers("boards").at(dim)),
      wiring(static_cast<Wiring>(params.integers("wiring").at(dim))),
      leaf_boards(params.integers("leaf_boards").at(dim)),
      tree(network_shape(params, dim), 0, 2 * boards, 1) {}

// Counts, numbering and distances. Let e be the hops to the nearer end of a board and n the cables across a network.
// Along a line: e + n + e, or less on one board. Networks that keep to their lines leave rows and columns to add up.
// A shared network reaches every line of a row of boards, so each crossing of it picks a new line: no packet has to
// walk to the end of a board in the other dimension before it (RC: row network, then column network) or after it (CR).
class Mesh : public DistanceFunction {
 public:
  explicit Mesh(const Params& params) : rows_(params, 0), columns_(params, 1) {
    cells_.reserve(static_cast<size_t>(rows_.size) * rows_.boards * columns_.size * columns_.boards);
    for (int32_t y = 0; y < columns_.boards; ++y) {
      for (int32_t x = 0; x < rows_.boards; ++x) place_board(x, y);
    }
    first_column_switch_ = first_switch() + num_networks(rows_, columns_) * rows_.num_switches();
    num_switches_ = first_column_switch_ - first_switch() + num_networks(columns_, rows_) * columns_.num_switches();
  }

  const Axis& rows() const { return rows_; }
  const Axis& columns() const { return columns_; }
  int32_t num_accelerators() const { return static_cast<int32_t>(cells_.size()); }
  int32_t num_switches() const { return num_switches_; }
  int32_t first_switch() const { return num_accelerators(); }
  int32_t first_column_switch() const { return first_column_switch_; }

  const Place& column_of(int32_t accelerator) const { return cells_[static_cast<size_t>(accelerator)].x; }
  const Place& row_of(int32_t accelerator) const { return cells_[static_cast<size_t>(accelerator)].y; }
  // Of a switch in its network: 0 for leaves.
  int32_t tier_of(int32_t vertex) const {
    const bool is_columns = vertex >= first_column_switch_;
    const Axis& axis = is_columns ? columns_ : rows_;
    const int32_t index = vertex - (is_columns ? first_column_switch_ : first_switch());
    return axis.tree.tier_of(index % axis.num_switches());
  }

  // Networks of a dimension: one a line, or one for all lines of a row of boards.
  static int32_t num_networks(const Axis& axis, const Axis& other) {
    return other.boards * (axis.is_shared() ? 1 : other.size);
  }

  int32_t accelerator(Place x, Place y) const {
    const int32_t board = y.board * rows_.boards + x.board;
    return (board * columns_.size + y.at) * rows_.size + x.at;
  }

  int32_t distance(int32_t vertex, int32_t accelerator) const override {
    const Cell& to = cells_[static_cast<size_t>(accelerator)];
    if (vertex < num_accelerators()) return between(cells_[static_cast<size_t>(vertex)], to);
    if (vertex < first_column_switch_) return from_switch(rows_, columns_, vertex - first_switch(), to.x, to.y);
    return from_switch(columns_, rows_, vertex - first_column_switch_, to.y, to.x);
  }

  int32_t diameter() const override {
    const std::vector<Trip> along_x = farthest(rows_);
    const std::vector<Trip> along_y = farthest(columns_);
    int32_t longest = 0;
    for (const Trip& x : along_x) {
      for (const Trip& y : along_y) longest = std::max(longest, between({x.from, y.from}, {x.to, y.to}));
    }
    return longest;
  }

 private:
  struct Cell {
    Place x;
    Place y;
  };
  struct Trip {
    Place from;
    Place to;
  };

  void place_board(int32_t x, int32_t y) {
    for (int32_t j = 0; j < columns_.size; ++j) {
      for (int32_t i = 0; i < rows_.size; ++i) cells_.push_back({{x, i}, {y, j}});
    }
  }

  int32_t between(const Cell& from, const Cell& to) const {
    if (rows_.is_shared() && columns_.is_shared()) return with_two_shared(from, to);
    if (rows_.is_shared()) return with_one_shared(rows_, columns_, from.x, to.x, from.y, to.y);
    if (columns_.is_shared()) return with_one_shared(columns_, rows_, from.y, to.y, from.x, to.x);
    return rows_.along(from.x, to.x) + columns_.along(from.y, to.y);
  }

  // One crossing of the shared network spares the walk to the end of a board, or of the other, in the plain dimension;
  // a second crossing spares both. s: places along the shared dimension, p: along the plain one.
  static int32_t with_one_shared(const Axis& shared, const Axis& plain, Place s, Place s_to, Place p, Place p_to) {
    int32_t hops = shared.to_edge(s.at) + 2 + shared.to_edge(s_to.at);
    if (p.board != p_to.board) {
      hops += plain.across(p.board, p_to.board) + std::min({plain.to_edge(p.at), plain.to_edge(p_to.at), 2});
    }
    if (s.board != s_to.board) return hops;
    return std::min(hops, std::abs(s.at - s_to.at) + plain.along(p, p_to));
  }

  // The networks crossed, in order: RC, CR, RCR, CRC; R alone within a row of boards, C alone within a column, or none.
  int32_t with_two_shared(const Cell& from, const Cell& to) const {
    const int32_t ex = rows_.to_edge(from.x.at);
    const int32_t ey = columns_.to_edge(from.y.at);
    const int32_t ex_to = rows_.to_edge(to.x.at);
    const int32_t ey_to = columns_.to_edge(to.y.at);
    int32_t hops = std::min({4 + ex + ey_to, 4 + ey + ex_to, 6 + ex + ex_to, 6 + ey + ey_to});
    const bool is_same_x = from.x.board == to.x.board;
    const bool is_same_y = from.y.board == to.y.board;
    if (is_same_y) hops = std::min(hops, 2 + ex + ex_to);
    if (is_same_x) hops = std::min(hops, 2 + ey + ey_to);
    if (!is_same_x || !is_same_y) return hops;
    return std::min(hops, std::abs(from.x.at - to.x.at) + std::abs(from.y.at - to.y.at));
  }

  // From switch `index` of the networks of `axis` to a place `to` along it and `across_to` along the other dimension.
  static int32_t from_switch(const Axis& axis, const Axis& other, int32_t index, Place to, Place across_to) {
    const int32_t network = index / axis.num_switches();
    const int32_t end = axis.down(index % axis.num_switches(), to.board);
    const int32_t inwards = axis.to_edge(to.at);
    const int32_t other_inwards = other.to_edge(across_to.at);
    if (axis.is_shared()) {
      const bool is_own_row = network == across_to.board;
      if (other.is_shared()) return end + std::min(2 + other_inwards, (is_own_row ? 0 : 4) + inwards);
      if (is_own_row) return end + inwards;
      return end + inwards + other.across(network, across_to.board) + std::min(other_inwards, 2);
    }
    const Place line{network / other.size, network % other.size};
    if (!other.is_shared()) return end + inwards + other.along(line, across_to);
    const int32_t over = other.to_edge(line.at) + 2 + other_inwards;
    if (line.board != across_to.board) return end + over;
    return end + std::min(over, inwards + std::abs(line.at - across_to.at));
  }

  // Trips along a dimension among which the longest is. Boards apart, distances only grow with the hops to the ends
  // and with the levels of a tree; a single board needs all pairs.
  static std::vector<Trip> farthest(const Axis& axis) {
    const int32_t middle = (axis.size - 1) / 2;
    if (axis.boards > 1) return {{{0, middle}, {axis.boards - 1, middle}}};
    std::vector<Trip> trips;
    for (int32_t from = 0; from < axis.size; ++from) {
      for (int32_t to = from; to < axis.size; ++to) trips.push_back({{0, from}, {0, to}});
    }
    return trips;
  }

  Axis rows_;
  Axis columns_;
  std::vector<Cell> cells_;  // by accelerator
  int32_t first_column_switch_ = 0;
  int32_t num_switches_ = 0;
};

// Adds links to a blueprint. Parallel cables of an accelerator and a switch are a bundle each way, and so are all
// uplinks of a leaf; its downlinks where every leaf has as many links to each spine.
class Wirer {
 public:
  Wirer(const Mesh& mesh, const Params& params, Blueprint& plan)
      : mesh_(mesh),
        capacity_(params.rate("link_bandwidth_bytes_per_s")),
        cable_(params.time("link_latency_s")),
        trace_(params.time("board_latency_s")),
        plan_(plan) {}

  void lay_boards() {
    const Axis& rows = mesh_.rows();
    const Axis& columns = mesh_.columns();
    for (int32_t board = 0; board < rows.boards * columns.boards; ++board) {
      const int32_t first = board * rows.size * columns.size;
      for (int32_t j = 0; j < columns.size; ++j) {
        for (int32_t i = 0; i < rows.size; ++i) {
          const int32_t here = first + j * rows.size + i;
          if (i + 1 < rows.size) plan_.add_cable(here, here + 1, capacity_, trace_);
          if (j + 1 < columns.size) plan_.add_cable(here, here + rows.size, capacity_, trace_);
        }
      }
    }
  }

  void join_rows() {
    join(mesh_.rows(), mesh_.columns(), mesh_.first_switch(),
         [this](Place along, Place line) { return mesh_.accelerator(along, line); });
  }
  void join_columns() {
    join(mesh_.columns(), mesh_.rows(), mesh_.first_column_switch(),
         [this](Place along, Place line) { return mesh_.accelerator(line, along); });
  }

 private:
  // Joins all lines of `axis`; `number` gives the accelerator at a place along a line.
  template <typename Number>
  void join(const Axis& axis, const Axis& other, int32_t first_switch, const Number& number) {
    for (int32_t line = 0; line < other.boards * other.size; ++line) {
      const Place across{line / other.size, line % other.size};
      const int32_t network = axis.is_shared() ? across.board : line;
      const int32_t leaves = first_switch + network * axis.num_switches();
      for (int32_t board = 0; board < axis.boards; ++board) {
        const int32_t first = number({board, 0}, across);
        const int32_t last = number({board, axis.size - 1}, across);
        if (axis.wiring != Wiring::kWrap) {
          join_ends(first, last, leaves + axis.leaf_of(board));
        } else if (axis.size > 1) {
          plan_.add_cable(last, first, capacity_, cable_);
        }
      }
      if (axis.wiring == Wiring::kTree) grow_tree(axis.tree, leaves);
    }
  }

  void join_ends(int32_t first, int32_t last, int32_t leaf) {
    const bool is_pair = first == last;
    const int32_t up = is_pair ? num_bundles_++ : -1;
    const int32_t down = is_pair ? num_bundles_++ : -1;
    plan_.add_cable(first, leaf, capacity_, cable_, up, down);
    plan_.add_cable(last, leaf, capacity_, cable_, up, down);
  }

  void grow_tree(const Tree& tree, int32_t leaves) {
    tree.add_cables(capacity_, cable_, leaves, num_bundles_, plan_);
    num_bundles_ += tree.num_bundles();
  }

  const Mesh& mesh_;
  double capacity_;
  SimTime cable_;
  SimTime trace_;
  Blueprint& plan_;
  int32_t num_bundles_ = 0;
};

// Maps of the mesh onto itself that move everything along one dimension: boards turned over, boards to the next one
// under their leaf, full leaves to the next one of their pod, full pods to the next one. The networks of the other
// dimension move along with their lines.
class Moves {
 public:
  Moves(const Mesh& mesh, bool is_along_rows)
      : mesh_(mesh),
        is_along_rows_(is_along_rows),
        axis_(is_along_rows ? mesh.rows() : mesh.columns()),
        other_(is_along_rows ? mesh.columns() : mesh.rows()) {}

  void append(std::vector<std::vector<int32_t>>& maps) const {
    if (axis_.size > 1) maps.push_back(map([this](Place p) { return Place{p.board, axis_.size - 1 - p.at}; }));
    if (axis_.wiring == Wiring::kWrap) return;
    const Tree& tree = axis_.tree;
    const int32_t in_leaf = std::min(axis_.boards, axis_.leaf_boards), in_pod = axis_.leaf_boards * tree.leaves_per_pod;
    if (in_leaf > 1) append_turn(1, in_leaf, maps);
    if (axis_.boards >= 2 * axis_.leaf_boards && tree.are_leaves_even()) {
      append_turn(axis_.leaf_boards, tree.leaves_per_pod, maps);
    }
    if (axis_.boards >= 2 * in_pod && tree.are_pods_even()) append_turn(in_pod, tree.num_pods, maps);
  }

 private:
  // `stride` boards go to the place of the next ones, round `count` such units; those that are not full stay.
  void append_turn(int32_t stride, int32_t count, std::vector<std::vector<int32_t>>& maps) const {
    maps.push_back(map([this, stride, count](Place p) {
      const int32_t first = p.board / (stride * count) * (stride * count);
      const int32_t num_full = std::min(count, (axis_.boards - first) / stride), index = (p.board - first) / stride;
      if (index >= num_full) return p;
      return Place{index + 1 < num_full ? p.board + stride : first + (p.board - first) % stride, p.at};
    }));
  }

  // `move` takes places along the dimension to others.
  template <typename Move>
  std::vector<int32_t> map(const Move& move) const {
    std::vector<int32_t> image(static_cast<size_t>(mesh_.num_accelerators() + mesh_.num_switches()));
    for (int32_t a = 0; a < mesh_.num_accelerators(); ++a) {
      const Place &x = mesh_.column_of(a), &y = mesh_.row_of(a);
      image[a] = is_along_rows_ ? mesh_.accelerator(move(x), y) : mesh_.accelerator(x, move(y));
    }
    const int32_t own = is_along_rows_ ? mesh_.first_switch() : mesh_.first_column_switch();
    const int32_t across = is_along_rows_ ? mesh_.first_column_switch() : mesh_.first_switch();
    for (int32_t i = 0; i < Mesh::num_networks(axis_, other_) * axis_.num_switches(); ++i) {
      const int32_t slot = i % axis_.num_switches();
      image[own + i] = own + i - slot + slot_after(move, slot);
    }
    for (int32_t i = 0; i < Mesh::num_networks(other_, axis_) * other_.num_switches(); ++i) {
      const int32_t network = i / other_.num_switches(), slot = i % other_.num_switches();
      image[across + i] = across + network_after(move, network) * other_.num_switches() + slot;
    }
    return image;
  }

  // Where a switch moves in its network: leaves and pods' switches with their first boards.
  template <typename Move>
  int32_t slot_after(const Move& move, int32_t slot) const {
    const Tree& tree = axis_.tree;
    if (tree.tier_of(slot) == 0) return axis_.leaf_of(move(Place{slot * axis_.leaf_boards, 0}).board);
    if (tree.tier_of(slot) == 2) return slot;
    const int32_t pod = tree.pod_of_middle(slot), first_board = pod * tree.leaves_per_pod * axis_.leaf_boards;
    return slot + (tree.pod_of_leaf(axis_.leaf_of(move(Place{first_board, 0}).board)) - pod) * tree.pod_switches;
  }

  // Where a network of the other dimension moves.
  template <typename Move>
  int32_t network_after(const Move& move, int32_t network) const {
    if (other_.is_shared()) return move(Place{network, 0}).board;
    const Place line = move(Place{network / axis_.size, network % axis_.size});
    return line.board * axis_.size + line.at;
  }

  const Mesh& mesh_;
  bool is_along_rows_;
  const Axis& axis_;
  const Axis& other_;
};

// North last on boards (after a link to a lower row only such ones), up and then down in trees, and a virtual channel
// more whenever a packet leaves a board: three of them, for two networks. A cable that wraps counts as a network.
// Phase: 4 x channel + mode. Source: HammingMesh, section IV-C; north-last: Glass and Ni, ISCA 1992.
class NorthLast : public PathRule {
 public:
  explicit NorthLast(std::shared_ptr<const Mesh> mesh) : mesh_(std::move(mesh)) {}
  int32_t num_phases() const override { return kChannels * kModes; }
  int32_t next_phase(int32_t phase, const Link& link) const override {
    const int32_t channel = phase / kModes, mode = phase % kModes;
    const bool is_from_board = link.src < mesh_->num_accelerators(), is_to_board = link.dst < mesh_->num_accelerators();
    if (is_from_board && is_to_board && !is_wrap(link)) {
      const bool is_north = mesh_->row_of(link.dst).at < mesh_->row_of(link.src).at;
      return mode == kNorth && !is_north ? -1 : channel * kModes + (is_north ? kNorth : kFree);
    }
    if (is_from_board) {
      if (channel + 1 == kChannels) return -1;
      return (channel + 1) * kModes + (is_to_board ? kFree : kUp);
    }
    if (is_to_board) return channel * kModes + kFree;
    const bool is_up = mesh_->tier_of(link.dst) > mesh_->tier_of(link.src);
    return mode == kDown && is_up ? -1 : channel * kModes + (is_up ? kUp : kDown);
  }

 private:
  enum Mode : int32_t { kFree, kNorth, kUp, kDown, kModes };
  static constexpr int32_t kChannels = 3;

  bool is_wrap(const Link& link) const {
    const int32_t dx = mesh_->column_of(link.dst).at - mesh_->column_of(link.src).at;
    const int32_t dy = mesh_->row_of(link.dst).at - mesh_->row_of(link.src).at;
    return std::abs(dx) + std::abs(dy) > 1;
  }

  std::shared_ptr<const Mesh> mesh_;
};

}  // namespace

Blueprint design_hammingmesh(const Params& params) {
  const auto mesh = std::make_shared<Mesh>(params);
  Blueprint plan;
  plan.name = "hammingmesh";
  plan.num_accelerators = mesh->num_accelerators();
  plan.num_switches = mesh->num_switches();
  plan.accelerators_forward = true;
  plan.board_size = mesh->rows().size * mesh->columns().size;
  plan.forward_latency = params.time("switch_latency_s");
  Wirer wirer(*mesh, params, plan);
  wirer.lay_boards();
  wirer.join_rows();
  wirer.join_columns();
  plan.bundles_collapse = mesh->rows().is_even() && mesh->columns().is_even();
  plan.turn_rule = std::make_shared<NorthLast>(mesh);
  for (const bool is_along_rows : {true, false}) Moves(*mesh, is_along_rows).append(plan.symmetries);
  plan.distance = mesh;
  return plan;
}

}  // namespace rostam::fabric
