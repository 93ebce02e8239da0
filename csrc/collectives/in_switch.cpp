// Collectives by switches that add up, or copy, what comes through them (collectives/region.h). p ranks, u = ceil(S/p)
// unless stated. A rank owns a share of the buffer and moves it through its region; data of one step are one transfer,
// which loads every link as packets behind each other would. Their contents are not followed.
//
// nvls, p ranks of one server, one step: a rank's link carries its buffer up for all owners' shares and its own share's
// sum up again, its sum and all results down: (p+1) u in each direction,
//   alpha + (p+1) u / B, so a bus bandwidth of 2 (p-1)/(p+1) B; B = 308 GB/s gives H100's 480 for 8 ranks.
// collnet, m servers of g ranks, u = ceil(S/g), one step: inside servers the same, (g+1) u, and through each rank's NIC
// its chunk, once in each direction: max(alpha_in + (g+1) u / B_in, alpha_out + u / B_nic).
// What those two wait for besides comes with the start-up (collectives/switch_costs.py).
//
// Where switches of a network reduce, steps without bytes are crossings of it, of alpha each:
//   pull, all_reduce: all ranks are ready, requests, sums, results: 4 alpha + (p+1) u / B;
//     reduce_scatter, without the results: 3 alpha + p u / B;
//   push, all_reduce: data, then all ranks are through: 2 alpha + p u / B;
//   multicast, all_gather: all ranks are ready, data: 2 alpha + p u / B; broadcast the same with u = S / p.
// Source: Klenk et al., An In-Network Architecture for Accelerating Shared-Memory Multiprocessor Collectives (ISCA
// 2020).
#include <utility>

#include "collectives/schedule.h"
#include "collectives/wrap.h"
#include "sim/errors.h"

namespace rostam::collectives {

namespace {

class InSwitch : public Schedule {
 public:
  // What every rank owns in the step of the data, of each of the regions, and where each stands as a message.
  struct Part {
    Region region;
    int32_t num_chunks = 0;
  };
  InSwitch(int32_t p, int32_t num_chunks, std::vector<Part> parts, int32_t before = 0, int32_t after = 0)
      : Schedule(shape_of(p, num_chunks, before, after)), parts_(std::move(parts)), data_step_(before) {}

  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    if (step != data_step_) return;
    for (const Part& part : parts_) {
      const int32_t place = part.region.place(rank);
      const int32_t next = part.region.member(rank, wrap(place + 1, part.region.size));
      const int32_t chunk = wrap(rank, shape().num_chunks);
      out.push_back({next, chunk, chunk, part.num_chunks, part.region.op != SwitchOp::kMulticast});
    }
  }
  int32_t num_receives(int32_t, int32_t step) const override {
    return step == data_step_ ? static_cast<int32_t>(parts_.size()) : 0;
  }
  int64_t total_chunks_sent() const override {
    int64_t total = 0;
    for (const Part& part : parts_) total += int64_t{shape().num_ranks} * part.num_chunks;
    return total;
  }
  int64_t total_chunks_received() const override {
    int64_t total = 0;
    for (const Part& part : parts_) total += shape().num_ranks * part.region.received(part.num_chunks);
    return total;
  }

  std::vector<Region> regions() const override {
    std::vector<Region> regions;
    for (const Part& part : parts_) regions.push_back(part.region);
    if (shape().num_steps > 1) regions.push_back(crossing());
    return regions;
  }
  void region_transfers(int32_t, int32_t step, std::vector<RegionTransfer>& out) const override {
    if (step != data_step_) {
      out.push_back({static_cast<int32_t>(parts_.size()), 0});
      return;
    }
    for (size_t k = 0; k < parts_.size(); ++k) out.push_back({static_cast<int32_t>(k), parts_[k].num_chunks});
  }
  int32_t num_region_arrivals(int32_t, int32_t step) const override {
    if (step != data_step_) return crossing().size;
    int32_t count = 0;
    for (const Part& part : parts_) count += part.region.op == SwitchOp::kReduce ? 1 : part.region.size;
    return count;
  }
  bool loads_as_messages() const override { return shape().num_steps < 2; }

 private:
  static Shape shape_of(int32_t p, int32_t num_chunks, int32_t before, int32_t after) {
    Shape shape;
    shape.num_ranks = p;
    shape.num_steps = p > 1 ? before + 1 + after : 0;
    shape.num_chunks = num_chunks;
    return shape;
  }
  // Every rank tells all.
  Region crossing() const { return {SwitchOp::kMulticast, 1, shape().num_ranks}; }

  std::vector<Part> parts_;
  int32_t data_step_;
};

// Rank 0's buffer, copied to all.
class SwitchBroadcast : public Schedule {
 public:
  explicit SwitchBroadcast(int32_t p) : Schedule(shape_of(p)), region_{SwitchOp::kMulticast, 1, p} {}

  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    if (step == 1 && rank == 0) out.push_back({1, 0, 0, 1});
  }
  int32_t num_receives(int32_t rank, int32_t step) const override { return step == 1 && rank == 1; }
  int64_t total_chunks_sent() const override { return shape().num_ranks > 1; }
  int64_t total_chunks_received() const override { return region_.received(total_chunks_sent()); }
  std::vector<Region> regions() const override { return {region_}; }
  void region_transfers(int32_t rank, int32_t step, std::vector<RegionTransfer>& out) const override {
    if (step == 0) out.push_back({0, 0});
    if (step == 1 && rank == 0) out.push_back({0, 1});
  }
  int32_t num_region_arrivals(int32_t, int32_t step) const override { return step == 0 ? region_.size : 1; }
  bool loads_as_messages() const override { return false; }

 private:
  static Shape shape_of(int32_t p) {
    Shape shape;
    shape.num_ranks = p;
    shape.num_steps = p > 1 ? 2 : 0;
    shape.num_chunks = 1;
    return shape;
  }
  Region region_;
};

// All ranks on one server, or one network.
std::unique_ptr<Schedule> make_whole(int32_t p, SwitchOp op, int32_t num_chunks, int32_t before, int32_t after) {
  std::vector<InSwitch::Part> parts;
  if (p > 1) parts.push_back({{op, 1, p}, num_chunks});
  return std::make_unique<InSwitch>(p, p, std::move(parts), before, after);
}

}  // namespace

std::unique_ptr<Schedule> make_all_reduce_nvls(int32_t p, const Layout&) {
  return make_whole(p, SwitchOp::kPull, p + 1, 0, 0);
}

std::unique_ptr<Schedule> make_all_reduce_collnet(int32_t p, const Layout& layout) {
  const bool is_one_size = layout.group_sizes.size() == 1;
  const int32_t g = is_one_size ? layout.group_sizes[0] : 0;
  if (g < 1 || p % g != 0) {
    ROSTAM_THROW(ConfigError, "collnet all_reduce over " << p << " ranks on servers of " << g
                                                         << "; every server must have as many ranks");
  }
  std::vector<InSwitch::Part> parts;
  if (g > 1) parts.push_back({{SwitchOp::kPull, 1, g}, g + 1});
  if (p > g) parts.push_back({{SwitchOp::kPush, g, p / g}, 1});
  return std::make_unique<InSwitch>(p, g, std::move(parts));
}

std::unique_ptr<Schedule> make_all_reduce_pull(int32_t p, const Layout&) {
  return make_whole(p, SwitchOp::kPull, p + 1, 2, 1);
}

std::unique_ptr<Schedule> make_all_reduce_push(int32_t p, const Layout&) {
  return make_whole(p, SwitchOp::kPush, p, 0, 1);
}

std::unique_ptr<Schedule> make_reduce_scatter_pull(int32_t p, const Layout&) {
  return make_whole(p, SwitchOp::kReduce, p, 2, 0);
}

std::unique_ptr<Schedule> make_all_gather_multicast(int32_t p, const Layout&) {
  return make_whole(p, SwitchOp::kMulticast, 1, 1, 0);
}

std::unique_ptr<Schedule> make_broadcast_multicast(int32_t p, const Layout&) {
  return std::make_unique<SwitchBroadcast>(p);
}

}  // namespace rostam::collectives
