// RingTable: the one-way rings that a system's programs pass messages round, and the links that are theirs alone.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "folding/folding.h"

namespace rostam::runtime {

using folding::Footprint;
using folding::WeightedSystem;

struct Ring {
  int32_t slot = 0;
  std::vector<int32_t> devices;        // simulated
  std::vector<int32_t> peers;          // that each of them sends to, as its binding names it
  std::vector<routing::Route> routes;  // of their messages
  std::vector<double> bytes_per_s;     // that a message alone gets on each
  // Whether each rank's messages share links with others of the ring; empty where none does.
  std::vector<uint8_t> is_shared;

  bool shares_links() const { return !is_shared.empty(); }
};

class RingTable {
 public:
  // The route from a simulated device to a peer device on a slot, as its messages take it.
  using RouteFunction = std::function<routing::Route(int32_t device, int32_t slot, int32_t peer)>;
  static constexpr int32_t kNone = -1, kChanging = -2;

  struct Rank {
    int32_t ring = kNone;
    int32_t position = 0;
  };

  // Finds the rings; of rings that share a link the smaller one is taken. Links of the footprint make none.
  // takes_sharing: also rings of which fewer than half of the messages share links with others of them, where no other
  // channel of the system ever uses a link of the rest: all channels x links a route, up to as many.
  // Cost: the rings' channels x links a route; above 4 M of them no further ring is taken.
  RingTable(const WeightedSystem& system, const Footprint& footprint, bool takes_sharing, const RouteFunction& route);

  const std::vector<Ring>& rings() const { return rings_; }

  // The ring that a device's slot belongs to; `ring` is kNone for most.
  const Rank& rank_of(int32_t device, int32_t slot) const { return ranks_[first_rank_[device] + slot]; }

  // Whose messages use a link: a ring, kNone, or kChanging.
  int32_t owner_of(int32_t link) const { return owner_[link]; }

  // Rings of others whose links the route of a channel uses.
  std::vector<int32_t> crossed_by(const routing::Route& route, const Rank& own) const;

 private:
  void add(Ring&& ring);
  bool claim_links(const Ring& ring);
  void add_sharing(const WeightedSystem& system, std::vector<Ring>&& rings, size_t max_hops,
                   const RouteFunction& route);
  bool claim_unshared_links(Ring& ring, int32_t index);

  std::vector<Ring> rings_;
  std::vector<size_t> first_rank_;  // per simulated device, into ranks_
  std::vector<Rank> ranks_;         // per slot of every device
  std::vector<int32_t> owner_;      // per link: the ring whose messages use it, kNone or kChanging
};

}  // namespace rostam::runtime
