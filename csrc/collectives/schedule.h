// Schedule: a collective algorithm as a generator (step, rank) -> messages; it never stores the whole exchange.
// A rank begins step k + 1 when its sends of step k have left it and the messages it awaits in step k have come.
// Buffers are num_chunks chunks of ceil(S / num_chunks) bytes (MODEL A4); the same transfers move real integers
// in tests, which shows that every algorithm computes what its name says.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/region.h"

namespace rostam::collectives {

// Chunks [source_chunk, source_chunk + num_chunks) modulo the buffer go to `peer`, into target_chunk onwards,
// added to the data there (reduces) or overwriting it.
struct Transfer {
  int32_t peer = 0;
  int32_t source_chunk = 0;
  int32_t target_chunk = 0;
  int32_t num_chunks = 1;
  bool reduces = false;
  bool joins_last = false;  // it goes in one message with the transfer before it, to the same peer
};

struct Shape {
  int32_t num_ranks = 0;
  int32_t num_steps = 0;
  int32_t num_chunks = 0;
  bool is_in_place = true;  // false: transfers read the input buffer and write another (all_to_all)
  // Arrivals come from one peer in step order, so that counting them is enough.
  bool has_ordered_arrivals = false;
  // Every step sends as many chunks to the same peers, so that one step tells what all of them load.
  bool has_fixed_peers = false;
  int32_t max_peers = 0;  // that a rank sends to in all steps; 0: as many as there are ranks or steps
  // How many steps a rank may be ahead of the messages that it awaits: it goes on from step k when those of step k -
  // lead have come.
  int32_t lead = 0;
  // In every step every rank sends as many chunks to every other one: the same whatever the order of the ranks.
  bool is_all_alike = false;
  // A send waits until the receiver has reached the same step and occupies its sender until it is delivered, so
  // that a step costs alpha + bytes/B for every rank (MODEL A5). Rings send eagerly instead: their receive slots are
  // taken as deep enough, and a sender is free when its last byte has left.
  bool is_synchronous = false;
};

// How ranks stand on a torus: row-major on these sides, the last one fastest. Empty: on none.
using Sides = std::vector<int32_t>;

// Of two sides: rank = row * columns + column.
struct Grid {
  int32_t rows = 0;
  int32_t columns = 0;
};

// How the ranks of a group stand, and in how many pieces an algorithm works; algorithms ignore what they have no use
// for.
struct Layout {
  // Ranks of each group of consecutive ranks that are close; one number stands for equal groups of it. Rings take them
  // for servers whose every rank has a NIC, `hierarchical` needs equal ones.
  std::vector<int32_t> group_sizes = {1};
  Sides grid = {};         // what torus algorithms run on (a single rank is a grid of its own)
  int32_t num_pieces = 1;  // of the buffer, which `hierarchical` works on one behind the other
  // Orders of one server's ranks, a channel of a ring each, where direct links between them decide the channels; a
  // server comes after the other, and rings then ask for no group_sizes.
  std::vector<std::vector<int32_t>> rings = {};
  // Of spanning_trees, all of rank 0, then all of rank 1 and so on, as many of each: every rank's parent (the root's is
  // the root), then the stage in which the link from, or to, the parent is busy. All-reduces have trees up, then down.
  std::vector<std::vector<int32_t>> trees = {};
  // Of an all_to_all of unequal parts, for every rank the chunks that it has for each; its own stay. Empty: all equal.
  std::vector<std::vector<int32_t>> parts = {};

  // REQUIRES: two sides, as X_GRID_2D algorithms get.
  Grid rows_and_columns() const { return {grid[0], grid[1]}; }
};

class Schedule {
 public:
  explicit Schedule(Shape shape) : shape_(shape) {}
  virtual ~Schedule() = default;

  const Shape& shape() const { return shape_; }

  // Appends what `rank` sends in `step` to `out`. REQUIRES: 0 <= rank < num_ranks, 0 <= step < num_steps.
  virtual void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const = 0;

  // The first step behind `step` in which ranks may send other messages, or to others; their contents do not count.
  virtual int32_t next_unlike(int32_t step) const { return step + 1; }

  // The same as messages: transfers that travel together are one, whose chunks are its first transfer's from there on
  // in number only.
  virtual void messages(int32_t rank, int32_t step, std::vector<Transfer>& out) const;

  // Number of messages that come to `rank` in `step`, which it must have before it goes on, `lead` steps later.
  virtual int32_t num_receives(int32_t rank, int32_t step) const = 0;

  // Closed form of the chunks that all ranks together send; sessions check what they moved against it.
  virtual int64_t total_chunks_sent() const = 0;
  // What all ranks together receive: more where switches copy, less where they add up.
  virtual int64_t total_chunks_received() const { return total_chunks_sent(); }

  // Regions whose data switches add up or copy; none: ranks send to each other alone. Engines that know trees take
  // transfers through regions, each of which starts when all of its members have reached its step and, where the op
  // writes, comes to all of them, in place of messages.
  virtual std::vector<Region> regions() const { return {}; }
  virtual void region_transfers(int32_t /*rank*/, int32_t /*step*/, std::vector<RegionTransfer>& /*out*/) const {}
  virtual int32_t num_region_arrivals(int32_t /*rank*/, int32_t /*step*/) const { return 0; }
  // False: messages stand for regions where pairs are asked for, but do not load links as those do.
  virtual bool loads_as_messages() const { return true; }

 private:
  Shape shape_;
};

// Makes the schedule of `collective` by `algorithm` for `num_ranks` >= 1 ranks.
// Throws: ConfigError for an unknown pair (lists the known ones), group sizes that do not make up the ranks, or a grid
// that is missing where it is needed, has more sides than the algorithm takes or does not hold num_ranks.
std::unique_ptr<Schedule> make_schedule(const std::string& collective, const std::string& algorithm, int32_t num_ranks,
                                        Layout layout);

// True for algorithms that run on a grid, and for those of them that take two sides only. Unknown pairs need none.
bool needs_grid(const std::string& collective, const std::string& algorithm);
bool needs_2d_grid(const std::string& collective, const std::string& algorithm);

// True for algorithms that use the NICs of all ranks of a server. Unknown pairs do not.
bool uses_servers(const std::string& collective, const std::string& algorithm);

// True for algorithms that are models of bandwidth, of switches that add up or of a pipeline of many steps: their
// transfers load links as those do and carry no data that could be followed.
bool models_bandwidth(const std::string& collective, const std::string& algorithm);

// True for those of them whose switches add up or copy, through regions.
bool reduces_in_switches(const std::string& collective, const std::string& algorithm);

// True for algorithms that take the buffer in pieces through phases inside and between groups.
bool works_in_pieces(const std::string& collective, const std::string& algorithm);

// True for algorithms that a default choice does not take: they run where they are asked for.
bool is_by_name_only(const std::string& collective, const std::string& algorithm);

// True for algorithms whose pieces of the buffer go one behind the other through all of their steps.
bool is_pipelined(const std::string& collective, const std::string& algorithm);

// True for algorithms that a default choice takes where direct links join the ranks, and nowhere else.
bool takes_direct_links(const std::string& collective, const std::string& algorithm);

// True for those of them that run along spanning trees, which the layout has.
bool takes_trees(const std::string& collective, const std::string& algorithm);

// All (collective, algorithm) pairs, in the order of builtin.inc.
std::vector<std::pair<std::string, std::string>> schedule_names();

}  // namespace rostam::collectives
