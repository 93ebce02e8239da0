// ExchangeTable: groups whose ranks send to several fixed peers in every step, over links that are mostly theirs alone:
// rings both ways round two cycles of a torus, say, where a failed link makes a few messages go round it.
#pragma once

#include <cstdint>
#include <vector>

#include "folding/folding.h"
#include "runtime/ring_table.h"

namespace rostam::runtime {

// One message of a rank in every step.
struct ExchangeSend {
  int32_t peer = 0;        // the rank that it goes to
  int32_t arrival = 0;     // its place among those that come to that rank in a step
  int64_t num_chunks = 0;  // of the buffer
  routing::Route route;
  double bytes_per_s = 0;  // that it gets alone
};

struct Exchange {
  int32_t slot = 0;
  int32_t schedule = 0;
  int32_t num_steps = 0;
  std::vector<int32_t> devices;                  // by rank
  std::vector<std::vector<ExchangeSend>> sends;  // by rank
  std::vector<int32_t> num_receives;             // by rank, in every step
  // By rank: whether none of its messages shares a link with another one of the group. All others go over the network.
  std::vector<uint8_t> is_relay;
};

class ExchangeTable {
 public:
  static constexpr int32_t kNone = -1;
  struct Rank {
    int32_t exchange = kNone;
    int32_t rank = 0;
  };

  ExchangeTable() = default;  // of none
  // Finds those of which more than half of the ranks are relays, where no other channel of the system ever uses a link
  // of theirs. REQUIRES: nothing changes routes, capacities or jobs.
  // Cost: nothing for systems without such schedules, else all channels x links a route, up to 4 M of those.
  ExchangeTable(const WeightedSystem& system, const RingTable::RouteFunction& route);

  const std::vector<Exchange>& exchanges() const { return exchanges_; }
  // What a device's slot belongs to; `exchange` is kNone for most.
  const Rank& rank_of(int32_t device, int32_t slot) const {
    return ranks_.empty() ? none_ : ranks_[first_rank_[device] + static_cast<size_t>(slot)];
  }

 private:
  void add(const WeightedSystem& system, Exchange&& exchange);

  Rank none_;
  std::vector<Exchange> exchanges_;
  std::vector<size_t> first_rank_;  // per simulated device, into ranks_
  std::vector<Rank> ranks_;         // per slot of every device; none where there are no exchanges
};

}  // namespace rostam::runtime
