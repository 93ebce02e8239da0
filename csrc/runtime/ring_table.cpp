#include "runtime/ring_table.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <unordered_map>
#include <utility>

namespace rostam::runtime {

namespace {

constexpr size_t kMaxHops = size_t{1} << 22;  // beyond it routes cost more than the messages that they save

bool is_one_way_ring(const collectives::Schedule& schedule) {
  const collectives::Shape& shape = schedule.shape();
  // From p - 1 steps on every rank's end depends on every rank's join: none is through before the last has joined.
  return shape.num_ranks >= 2 && shape.has_ordered_arrivals && shape.has_fixed_peers && !shape.is_synchronous &&
         shape.num_steps >= shape.num_ranks - 1;
}

// Per simulated device and slot: the device that its rings pass to, or -1 if it has other uses or peers.
std::vector<std::vector<int32_t>> ring_peers(const WeightedSystem& system) {
  workload::ChannelLister lister(*system.graph);
  const auto is_ring = [&system](int32_t s) { return s >= 0 && is_one_way_ring(*system.graph->schedules[s]); };
  std::vector<std::vector<int32_t>> peers;
  for (size_t d = 0; d < system.devices.size(); ++d) {
    const auto& uses = lister.uses_of(system.devices[d].program);
    std::vector<int32_t> of_slot(system.devices[d].slots.size(), -1);
    for (size_t slot = 0; slot < uses.size(); ++slot) {
      if (uses[slot].empty() || !std::all_of(uses[slot].begin(), uses[slot].end(), is_ring)) continue;
      const auto found = system.channels.destinations(static_cast<int32_t>(d), static_cast<int32_t>(slot));
      if (found.size() == 1) of_slot[slot] = *found.begin();
    }
    peers.push_back(std::move(of_slot));
  }
  return peers;
}

// The simulated devices of the ring that starts at `first`; empty if one on the way has none, or it does not close.
std::vector<int32_t> follow(const std::vector<std::vector<int32_t>>& peers, const WeightedSystem& system, int32_t first,
                            int32_t slot) {
  std::vector<int32_t> devices;
  int32_t d = first;
  do {
    const auto& of_slot = peers[d];
    if (slot >= static_cast<int32_t>(of_slot.size()) || of_slot[slot] < 0 || devices.size() >= peers.size()) return {};
    devices.push_back(d);
    d = system.device_stand_in[of_slot[slot]];
  } while (d != first);
  return devices;
}

// All rings of the programs, smaller ones first.
std::vector<Ring> find_rings(const WeightedSystem& system) {
  const auto num_devices = static_cast<int32_t>(system.devices.size());
  const std::vector<std::vector<int32_t>> peers = ring_peers(system);
  std::vector<std::vector<uint8_t>> is_seen(num_devices);
  std::vector<Ring> found;
  for (int32_t first = 0; first < num_devices; ++first) {
    for (int32_t slot = 0; slot < static_cast<int32_t>(peers[first].size()); ++slot) {
      if (peers[first][slot] < 0 || (!is_seen[first].empty() && is_seen[first][slot])) continue;
      Ring ring;
      ring.slot = slot;
      ring.devices = follow(peers, system, first, slot);
      for (const int32_t d : ring.devices) {
        is_seen[d].resize(peers[d].size(), 0);
        is_seen[d][slot] = 1;
        ring.peers.push_back(peers[d][slot]);
      }
      if (!ring.devices.empty()) found.push_back(std::move(ring));
    }
  }
  // Of rings that share links, tensor parallelism's in a server say, the smaller ones repeat more often.
  std::stable_sort(found.begin(), found.end(),
                   [](const Ring& a, const Ring& b) { return a.devices.size() < b.devices.size(); });
  return found;
}

// Fills the ring's routes and what a message gets on each of them alone. Returns how many links they have; stops above
// `max_hops`.
size_t add_routes(const WeightedSystem& system, const RingTable::RouteFunction& route, size_t max_hops, Ring& ring) {
  size_t num_hops = 0;
  for (size_t i = 0; i < ring.devices.size() && num_hops <= max_hops; ++i) {
    ring.routes.push_back(route(ring.devices[i], ring.slot, ring.peers[i]));
    num_hops += ring.routes.back().links.size();
    double bytes_per_s = std::numeric_limits<double>::infinity();
    for (const routing::LinkShare& hop : ring.routes.back().links) {
      bytes_per_s = std::min(bytes_per_s, system.links[hop.link].bytes_per_s / hop.share);
    }
    ring.bytes_per_s.push_back(bytes_per_s);
  }
  return num_hops;
}

}  // namespace

RingTable::RingTable(const WeightedSystem& system, const Footprint& footprint, bool takes_sharing,
                     const RouteFunction& route)
    : owner_(system.links.size(), kNone) {
  const auto num_devices = static_cast<int32_t>(system.devices.size());
  for (int32_t d = 0; d < num_devices; ++d) {
    first_rank_.push_back(ranks_.size());
    ranks_.resize(ranks_.size() + system.devices[d].slots.size());
  }
  for (const Footprint::Link& touched : footprint.links) owner_[system.link_stand_in[touched.link]] = kChanging;
  std::vector<Ring> found = find_rings(system), sharing;
  size_t num_hops = 0;
  for (Ring& ring : found) {
    num_hops += add_routes(system, route, kMaxHops - num_hops, ring);
    if (num_hops > kMaxHops) return;
    const auto has_rate = [](double rate) { return rate > 0 && rate < std::numeric_limits<double>::infinity(); };
    if (!std::all_of(ring.bytes_per_s.begin(), ring.bytes_per_s.end(), has_rate)) continue;
    if (claim_links(ring)) {
      add(std::move(ring));
    } else if (takes_sharing) {
      sharing.push_back(std::move(ring));
    }
  }
  if (!sharing.empty()) add_sharing(system, std::move(sharing), kMaxHops - num_hops, route);
}

void RingTable::add(Ring&& ring) {
  for (size_t i = 0; i < ring.devices.size(); ++i) {
    ranks_[first_rank_[ring.devices[i]] + ring.slot] = {static_cast<int32_t>(rings_.size()), static_cast<int32_t>(i)};
  }
  rings_.push_back(std::move(ring));
}

// Takes those of the rings, some of whose messages share links, on whose other links no channel of others is.
void RingTable::add_sharing(const WeightedSystem& system, std::vector<Ring>&& rings, size_t max_hops,
                            const RouteFunction& route) {
  const auto first = static_cast<int32_t>(rings_.size());
  for (Ring& ring : rings) {
    if (claim_unshared_links(ring, static_cast<int32_t>(rings_.size()))) add(std::move(ring));
  }
  std::vector<uint8_t> is_crossed(rings_.size(), 0);
  size_t num_hops = 0;
  for (int32_t d = 0; d < static_cast<int32_t>(system.devices.size()) && num_hops <= max_hops; ++d) {
    for (int32_t slot = 0; slot < static_cast<int32_t>(system.devices[d].slots.size()); ++slot) {
      for (const int32_t peer : system.channels.destinations(d, slot)) {
        const routing::Route links = route(d, slot, peer);
        num_hops += links.links.size();
        for (const int32_t ring : crossed_by(links, rank_of(d, slot))) is_crossed[ring] = 1;
      }
    }
  }
  std::vector<Ring> claimed(std::make_move_iterator(rings_.begin() + first), std::make_move_iterator(rings_.end()));
  rings_.resize(first);
  for (Rank& rank : ranks_) {
    if (rank.ring >= first) rank = Rank();
  }
  for (int32_t& owner : owner_) {
    if (owner >= first) owner = kNone;
  }
  for (size_t k = 0; k < claimed.size(); ++k) {
    const bool is_free = is_crossed[first + k] == 0 && num_hops <= max_hops;
    if (is_free && claim_unshared_links(claimed[k], static_cast<int32_t>(rings_.size()))) add(std::move(claimed[k]));
  }
}

// Makes the links of messages that share none those of ring `index`, if without owner and most messages share none;
// notes which do.
bool RingTable::claim_unshared_links(Ring& ring, int32_t index) {
  std::unordered_map<int32_t, int32_t> num_uses;
  for (const routing::Route& route : ring.routes) {
    if (!route.lanes.empty()) return false;
    for (const routing::LinkShare& hop : route.links) ++num_uses[hop.link];
  }
  std::vector<int32_t> claimed;
  ring.is_shared.clear();
  for (const routing::Route& route : ring.routes) {
    const auto is_shared = [&](const routing::LinkShare& hop) { return num_uses[hop.link] > 1; };
    ring.is_shared.push_back(std::any_of(route.links.begin(), route.links.end(), is_shared));
    if (ring.is_shared.back() != 0) continue;
    for (const routing::LinkShare& hop : route.links) claimed.push_back(hop.link);
  }
  const auto num_shared = std::count(ring.is_shared.begin(), ring.is_shared.end(), 1);
  const auto is_owned = [this](int32_t link) { return owner_[link] != kNone; };
  if (num_shared == 0 || 2 * num_shared >= static_cast<std::ptrdiff_t>(ring.devices.size())) return false;
  if (std::any_of(claimed.begin(), claimed.end(), is_owned)) return false;
  for (const int32_t link : claimed) owner_[link] = index;
  return true;
}

// Makes the links the next ring's, if they have no owner and no two of its messages share one.
bool RingTable::claim_links(const Ring& ring) {
  const auto is_split = [](const routing::Route& route) { return !route.lanes.empty(); };
  if (std::any_of(ring.routes.begin(), ring.routes.end(), is_split)) return false;
  const auto index = static_cast<int32_t>(rings_.size());
  for (size_t i = 0; i < ring.routes.size(); ++i) {
    for (const routing::LinkShare& hop : ring.routes[i].links) {
      if (owner_[hop.link] != kNone) {
        std::replace(owner_.begin(), owner_.end(), index, kNone);
        return false;
      }
      owner_[hop.link] = index;
    }
  }
  return true;
}

std::vector<int32_t> RingTable::crossed_by(const routing::Route& route, const Rank& own) const {
  std::vector<int32_t> rings;
  for (const routing::LinkShare& hop : route.links) {
    const int32_t owner = owner_[hop.link];
    if (owner < 0 || owner == own.ring || std::find(rings.begin(), rings.end(), owner) != rings.end()) continue;
    rings.push_back(owner);
  }
  return rings;
}

}  // namespace rostam::runtime
