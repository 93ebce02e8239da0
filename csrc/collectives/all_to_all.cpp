// All-to-all and send_recv. Chunk k of the input goes to rank k; the output's chunk k comes from rank k.
// direct: all p - 1 messages at once: (p-1)/p S/B + alpha. balanced_shift: in step i rank j sends to j + i mod p
// (HammingMesh V-A2): (p-1) (alpha + ceil(S/p)/B). Of unequal parts direct sends each as it is, alpha + (what the
// busiest port sends or receives)/B at least. send_recv: rank 0 sends its buffer to rank 1: alpha + S/B.
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "collectives/schedule.h"
#include "sim/errors.h"

namespace rostam::collectives {

namespace {

Shape exchange_shape(int32_t p, int32_t num_steps, bool is_synchronous) {
  Shape shape;
  shape.num_ranks = p;
  shape.num_steps = p > 1 ? num_steps : 0;
  shape.num_chunks = p;
  shape.is_in_place = false;
  shape.is_synchronous = is_synchronous;
  return shape;
}

Shape direct_shape(int32_t p) {
  Shape shape = exchange_shape(p, 1, false);
  shape.is_all_alike = true;
  return shape;
}

class DirectAllToAll : public Schedule {
 public:
  explicit DirectAllToAll(int32_t p) : Schedule(direct_shape(p)) {}
  void sends(int32_t rank, int32_t, std::vector<Transfer>& out) const override {
    const int32_t p = shape().num_ranks;
    for (int32_t shift = 1; shift < p; ++shift) {
      const int32_t peer = (rank + shift) % p;
      out.push_back({peer, peer, rank, 1, false});
    }
  }
  int64_t total_chunks_sent() const override { return int64_t{shape().num_ranks} * (shape().num_ranks - 1); }
  int32_t num_receives(int32_t, int32_t) const override { return shape().num_ranks - 1; }
};

// S is what the rank with the most has in all, its own part included.
class UnequalAllToAll : public Schedule {
 public:
  UnequalAllToAll(int32_t p, std::vector<std::vector<int32_t>> parts)
      : Schedule(unequal_shape(p, parts)), parts_(std::move(parts)), num_receives_(p, 0) {
    for (int32_t rank = 0; rank < p; ++rank) {
      for (int32_t peer = 0; peer < p; ++peer) {
        if (peer == rank || parts_[rank][peer] == 0) continue;
        ++num_receives_[peer];
        total_ += parts_[rank][peer];
      }
    }
  }
  void sends(int32_t rank, int32_t, std::vector<Transfer>& out) const override {
    const int32_t p = shape().num_ranks;
    for (int32_t shift = 1; shift < p; ++shift) {
      const int32_t peer = (rank + shift) % p;
      if (parts_[rank][peer] == 0) continue;
      out.push_back({peer, first_chunk(parts_[rank], peer), 0, parts_[rank][peer], false});
    }
  }
  int64_t total_chunks_sent() const override { return total_; }
  int32_t num_receives(int32_t rank, int32_t) const override { return num_receives_[rank]; }

 private:
  static Shape unequal_shape(int32_t p, const std::vector<std::vector<int32_t>>& parts) {
    Shape shape = exchange_shape(p, 1, false);
    shape.num_chunks = 0;
    for (const auto& row : parts) {
      const auto most = std::count_if(row.begin(), row.end(), [](int32_t part) { return part > 0; });
      shape.max_peers = std::max(shape.max_peers, static_cast<int32_t>(most));
      shape.num_chunks = std::max(shape.num_chunks, std::accumulate(row.begin(), row.end(), 0));
    }
    return shape;
  }
  static int32_t first_chunk(const std::vector<int32_t>& row, int32_t peer) {
    return std::accumulate(row.begin(), row.begin() + peer, 0);
  }

  std::vector<std::vector<int32_t>> parts_;
  std::vector<int32_t> num_receives_;
  int64_t total_ = 0;
};

class BalancedShift : public Schedule {
 public:
  explicit BalancedShift(int32_t p) : Schedule(exchange_shape(p, p - 1, true)) {}
  void sends(int32_t rank, int32_t step, std::vector<Transfer>& out) const override {
    const int32_t peer = (rank + step + 1) % shape().num_ranks;
    out.push_back({peer, peer, rank, 1, false});
  }
  int64_t total_chunks_sent() const override { return int64_t{shape().num_ranks} * (shape().num_ranks - 1); }
  int32_t num_receives(int32_t, int32_t) const override { return 1; }
};

class SendRecv : public Schedule {
 public:
  explicit SendRecv(Shape shape) : Schedule(shape) {}
  void sends(int32_t rank, int32_t, std::vector<Transfer>& out) const override {
    if (rank == 0) out.push_back({1, 0, 0, 1, false});
  }
  int64_t total_chunks_sent() const override { return 1; }
  int32_t num_receives(int32_t rank, int32_t) const override { return rank == 1; }
};

}  // namespace

std::unique_ptr<Schedule> make_all_to_all_direct(int32_t p, const Layout& layout) {
  if (!layout.parts.empty()) return std::make_unique<UnequalAllToAll>(p, layout.parts);
  return std::make_unique<DirectAllToAll>(p);
}
std::unique_ptr<Schedule> make_all_to_all_balanced_shift(int32_t p, const Layout&) {
  return std::make_unique<BalancedShift>(p);
}

std::unique_ptr<Schedule> make_send_recv_direct(int32_t p, const Layout&) {
  if (p != 2) ROSTAM_THROW(ConfigError, "send_recv over " << p << " ranks; it takes exactly 2");
  Shape shape;
  shape.num_ranks = 2;
  shape.num_steps = 1;
  shape.num_chunks = 1;
  return std::make_unique<SendRecv>(shape);
}

}  // namespace rostam::collectives
