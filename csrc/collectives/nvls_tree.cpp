// NCCL's NVLSTree all-reduce as a model of bandwidth: switches inside servers add up and hand out, two binary trees
// over servers add up between them, all of it in many small chunks at once. One step in which every link carries what
// it carries there; the depth of the trees, 2 ceil(log2 m) hops, goes with the start-up (collectives/transport.py). The
// transfers name whole chunks, and their contents are not followed.
// m servers of g ranks, u = ceil(S/g) in two halves: a rank's link in its server carries what it does in nvls
// (in_switch.cpp), (g+1) u in each direction. Rank k of every server stands in the trees with the part that its switch
// has added up for it, half of it in each: the busiest server sends up and to two children in the one, up in the other,
// 4 halves; of three servers 3, of two 2. All send here what the busiest does:
//   max(alpha + (g+1)/g S / B_server, alpha_nic + min(m, 4)/2 S/g / B_nic).
// Source: NCCL src/graph/connect.cc (NVLSTree: trees.cc over the heads of every server), src/device/all_reduce.h.
#include <algorithm>

#include "collectives/schedule.h"
#include "collectives/wrap.h"
#include "sim/errors.h"

namespace rostam::collectives {

namespace {

Shape nvls_tree_shape(int32_t p, int32_t g) {
  Shape shape;
  shape.num_ranks = p;
  shape.num_steps = p > 1;
  shape.num_chunks = 2 * g;  // halves of each rank's part
  return shape;
}

class NvlsTree : public Schedule {
 public:
  // Servers of g ranks each.
  NvlsTree(int32_t p, int32_t g) : Schedule(nvls_tree_shape(p, g)), g_(g), num_servers_(p / g) {}

  void sends(int32_t rank, int32_t, std::vector<Transfer>& out) const override {
    const int32_t server = rank / g_, place = rank % g_;
    if (g_ > 1) out.push_back({server * g_ + wrap(place + 1, g_), 2 * place, 2 * place, 2 * (g_ + 1), true});
    if (num_servers_ > 1) {
      const int32_t next = wrap(server + 1, num_servers_) * g_ + place;
      out.push_back({next, 2 * place, 2 * place, halves_between(), true});
    }
  }
  int64_t total_chunks_sent() const override {
    return int64_t{shape().num_ranks} * ((g_ > 1 ? 2 * (g_ + 1) : 0) + (num_servers_ > 1 ? halves_between() : 0));
  }
  int32_t num_receives(int32_t, int32_t) const override { return (g_ > 1) + (num_servers_ > 1); }

 private:
  int32_t halves_between() const { return std::min(num_servers_, 4); }

  int32_t g_, num_servers_;
};

}  // namespace

std::unique_ptr<Schedule> make_all_reduce_nvls_tree(int32_t p, const Layout& layout) {
  const bool is_one_size = layout.group_sizes.size() == 1;
  const int32_t g = is_one_size ? layout.group_sizes[0] : 0;
  if (g < 1 || p % g != 0) {
    ROSTAM_THROW(ConfigError, "nvls_tree all_reduce over " << p << " ranks on servers of " << g
                                                           << "; every server must have as many ranks");
  }
  return std::make_unique<NvlsTree>(p, g);
}

}  // namespace rostam::collectives
