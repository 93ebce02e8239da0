// All-reduce by switches that add up what comes through them, as a model of bandwidth: one step in which every link
// carries what it carries there. The transfers name whole chunks, and their contents are not followed.
// nvls, p ranks on one switch, chunks of u = ceil(S/p): a rank's link carries its buffer up for the others' chunks and
// its own reduced chunk up again, one chunk and the whole result down: (p+1) u in each direction,
//   alpha + (p+1) u / B, so a bus bandwidth of 2 (p-1)/(p+1) B; B = 308 GB/s gives H100's 480 for 8 ranks.
// collnet, m servers of g ranks, u = ceil(S/g): inside servers the same, (g+1) u, and through each rank's NIC its
// chunk, once in each direction: max(alpha_in + (g+1) u / B_in, alpha_out + u / B_nic).
#include "collectives/schedule.h"
#include "collectives/wrap.h"
#include "sim/errors.h"

namespace rostam::collectives {

namespace {

Shape in_switch_shape(int32_t p, int32_t g) {
  Shape shape;
  shape.num_ranks = p;
  shape.num_steps = p > 1;
  shape.num_chunks = g;
  return shape;
}

class InSwitch : public Schedule {
 public:
  // Servers of g ranks each.
  InSwitch(int32_t p, int32_t g) : Schedule(in_switch_shape(p, g)), g_(g), num_servers_(p / g) {}

  void sends(int32_t rank, int32_t, std::vector<Transfer>& out) const override {
    const int32_t server = rank / g_, place = rank % g_;
    if (g_ > 1) out.push_back({server * g_ + wrap(place + 1, g_), place, place, g_ + 1, true});
    if (num_servers_ > 1) out.push_back({wrap(server + 1, num_servers_) * g_ + place, place, place, 1, true});
  }
  int64_t total_chunks_sent() const override {
    return int64_t{shape().num_ranks} * ((g_ > 1 ? g_ + 1 : 0) + (num_servers_ > 1 ? 1 : 0));
  }
  int32_t num_receives(int32_t, int32_t) const override { return (g_ > 1) + (num_servers_ > 1); }

 private:
  int32_t g_, num_servers_;
};

}  // namespace

std::unique_ptr<Schedule> make_all_reduce_nvls(int32_t p, const Layout&) { return std::make_unique<InSwitch>(p, p); }

std::unique_ptr<Schedule> make_all_reduce_collnet(int32_t p, const Layout& layout) {
  const bool is_one_size = layout.group_sizes.size() == 1;
  const int32_t g = is_one_size ? layout.group_sizes[0] : 0;
  if (g < 1 || p % g != 0) {
    ROSTAM_THROW(ConfigError, "collnet all_reduce over " << p << " ranks on servers of " << g
                                                         << "; every server must have as many ranks");
  }
  return std::make_unique<InSwitch>(p, g);
}

}  // namespace rostam::collectives
