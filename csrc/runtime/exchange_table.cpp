#include "runtime/exchange_table.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

namespace rostam::runtime {

namespace {

constexpr size_t kMaxHops = size_t{1} << 22;  // beyond it routes cost more than the messages that they save

// Each rank goes on when its own messages have left and those of all its peers have come, and none waits for a
// receiver.
bool is_exchange(const collectives::Shape& shape) {
  return shape.has_fixed_peers && !shape.has_ordered_arrivals && !shape.is_synchronous && shape.lead == 0 &&
         shape.num_ranks >= 2 && shape.num_steps >= 1;
}

// The devices of a group whose every rank runs one exchange's schedule, and nothing else, on the slot; empty if some
// do not.
std::vector<int32_t> devices_of(const WeightedSystem& system, workload::ChannelLister& lister, int32_t group,
                                int32_t slot, int32_t schedule) {
  std::vector<int32_t> devices;
  for (const int32_t member : system.graph->groups[group]) {
    const int32_t d = system.device_stand_in[member];
    const workload::Device& device = system.devices[d];
    const auto& uses = lister.uses_of(device.program);
    const bool is_alike = slot < static_cast<int32_t>(uses.size()) && uses[slot].size() == 1 &&
                          uses[slot].front() == schedule && device.slots[slot].group == group;
    if (!is_alike || device.slots[slot].rank != static_cast<int32_t>(devices.size())) return {};
    devices.push_back(d);
  }
  return devices;
}

// Fills what every rank sends. Returns false where a rank sends two messages to one peer, or something has no rate.
bool add_sends(const WeightedSystem& system, const RingTable::RouteFunction& route, size_t& num_hops,
               Exchange& exchange) {
  const collectives::Schedule& schedule = *system.graph->schedules[exchange.schedule];
  const auto num_ranks = static_cast<int32_t>(exchange.devices.size());
  const std::vector<int32_t>& members =
      system.graph->groups[system.devices[exchange.devices[0]].slots[exchange.slot].group];
  exchange.sends.resize(exchange.devices.size());
  exchange.num_receives.assign(exchange.devices.size(), 0);
  std::vector<collectives::Transfer> transfers;
  for (int32_t rank = 0; rank < num_ranks; ++rank) {
    transfers.clear();
    schedule.messages(rank, 0, transfers);
    std::vector<ExchangeSend>& sends = exchange.sends[rank];
    for (const collectives::Transfer& transfer : transfers) {
      const auto is_there = [&](const ExchangeSend& one) { return one.peer == transfer.peer; };
      if (std::any_of(sends.begin(), sends.end(), is_there)) return false;
      ExchangeSend send;
      send.peer = transfer.peer;
      send.arrival = exchange.num_receives[transfer.peer]++;
      send.num_chunks = transfer.num_chunks;
      send.route = route(exchange.devices[rank], exchange.slot, members[transfer.peer]);
      num_hops += send.route.links.size();
      send.bytes_per_s = std::numeric_limits<double>::infinity();
      for (const routing::LinkShare& hop : send.route.links) {
        send.bytes_per_s = std::min(send.bytes_per_s, system.links[hop.link].bytes_per_s / hop.share);
      }
      const bool has_rate = send.bytes_per_s > 0 && send.bytes_per_s < std::numeric_limits<double>::infinity();
      if (!has_rate || !send.route.lanes.empty() || num_hops > kMaxHops) return false;
      sends.push_back(std::move(send));
    }
    if (sends.empty()) return false;
  }
  for (int32_t rank = 0; rank < num_ranks; ++rank) {
    if (schedule.num_receives(rank, 0) != exchange.num_receives[rank]) return false;
  }
  return true;
}

// Makes relays of the ranks whose messages share links with none. Returns whether they are more than half.
bool find_relays(size_t num_links, Exchange& exchange) {
  std::vector<int32_t> num_uses(num_links, 0);
  for (const std::vector<ExchangeSend>& sends : exchange.sends) {
    for (const ExchangeSend& send : sends) {
      for (const routing::LinkShare& hop : send.route.links) ++num_uses[hop.link];
    }
  }
  const auto is_alone = [&](const ExchangeSend& send) {
    return std::all_of(send.route.links.begin(), send.route.links.end(),
                       [&](const routing::LinkShare& hop) { return num_uses[hop.link] == 1; });
  };
  for (const std::vector<ExchangeSend>& sends : exchange.sends) {
    exchange.is_relay.push_back(std::all_of(sends.begin(), sends.end(), is_alone));
  }
  const auto num_relays = std::count(exchange.is_relay.begin(), exchange.is_relay.end(), 1);
  return 2 * num_relays > static_cast<std::ptrdiff_t>(exchange.devices.size());
}

std::vector<Exchange> find_exchanges(const WeightedSystem& system, const RingTable::RouteFunction& route) {
  std::vector<Exchange> found;
  workload::ChannelLister lister(*system.graph);
  std::set<std::pair<int32_t, int32_t>> seen;  // group and slot
  size_t num_hops = 0;
  for (const workload::Device& device : system.devices) {
    const auto& uses = lister.uses_of(device.program);
    for (int32_t slot = 0; slot < static_cast<int32_t>(uses.size()); ++slot) {
      const int32_t schedule = uses[slot].size() == 1 ? uses[slot].front() : -1;
      if (schedule < 0 || !is_exchange(system.graph->schedules[schedule]->shape())) continue;
      if (!seen.emplace(device.slots[slot].group, slot).second) continue;
      Exchange exchange;
      exchange.slot = slot;
      exchange.schedule = schedule;
      exchange.num_steps = system.graph->schedules[schedule]->shape().num_steps;
      exchange.devices = devices_of(system, lister, device.slots[slot].group, slot, schedule);
      if (exchange.devices.empty() || !add_sends(system, route, num_hops, exchange)) continue;
      if (find_relays(system.links.size(), exchange)) found.push_back(std::move(exchange));
    }
  }
  return found;
}

// Whose relays use each link; kNone for the others. Of two that claim one link neither is left.
std::vector<int32_t> owners_of(const std::vector<Exchange>& exchanges, size_t num_links,
                               std::vector<uint8_t>& is_shut) {
  std::vector<int32_t> owner(num_links, ExchangeTable::kNone);
  for (size_t e = 0; e < exchanges.size(); ++e) {
    for (size_t rank = 0; rank < exchanges[e].sends.size(); ++rank) {
      if (exchanges[e].is_relay[rank] == 0) continue;
      for (const ExchangeSend& send : exchanges[e].sends[rank]) {
        for (const routing::LinkShare& hop : send.route.links) {
          if (owner[hop.link] != ExchangeTable::kNone) is_shut[e] = is_shut[owner[hop.link]] = 1;
          owner[hop.link] = static_cast<int32_t>(e);
        }
      }
    }
  }
  return owner;
}

// Shuts the exchanges, other than `own`, whose relays' links the route crosses.
void shut_crossed(const routing::Route& route, int32_t own, const std::vector<int32_t>& owner,
                  std::vector<uint8_t>& is_shut) {
  for (const routing::LinkShare& hop : route.links) {
    if (owner[hop.link] != ExchangeTable::kNone && owner[hop.link] != own) is_shut[owner[hop.link]] = 1;
  }
}

// The same for all channels of the system. Returns false where they have too many links together.
bool shut_all_crossed(const WeightedSystem& system, const RingTable::RouteFunction& route,
                      const std::vector<Exchange>& exchanges, const std::vector<int32_t>& owner,
                      std::vector<uint8_t>& is_shut) {
  std::set<std::pair<int32_t, int32_t>> slots;  // of exchanges, with their devices
  for (size_t e = 0; e < exchanges.size(); ++e) {
    for (const int32_t d : exchanges[e].devices) slots.emplace(d, exchanges[e].slot);
    for (const std::vector<ExchangeSend>& sends : exchanges[e].sends) {
      for (const ExchangeSend& send : sends) shut_crossed(send.route, static_cast<int32_t>(e), owner, is_shut);
    }
  }
  size_t num_hops = 0;
  for (int32_t d = 0; d < static_cast<int32_t>(system.devices.size()); ++d) {
    for (int32_t slot = 0; slot < static_cast<int32_t>(system.devices[d].slots.size()); ++slot) {
      if (slots.count({d, slot}) > 0) continue;
      for (const int32_t peer : system.channels.destinations(d, slot)) {
        const routing::Route links = route(d, slot, peer);
        num_hops += links.links.size();
        if (num_hops > kMaxHops) return false;
        shut_crossed(links, ExchangeTable::kNone, owner, is_shut);
      }
    }
  }
  return true;
}

}  // namespace

ExchangeTable::ExchangeTable(const WeightedSystem& system, const RingTable::RouteFunction& route) {
  if (system.is_folded) return;
  std::vector<Exchange> found = find_exchanges(system, route);
  if (found.empty()) return;
  std::vector<uint8_t> is_shut(found.size(), 0);
  const std::vector<int32_t> owner = owners_of(found, system.links.size(), is_shut);
  if (!shut_all_crossed(system, route, found, owner, is_shut)) return;
  for (size_t e = 0; e < found.size(); ++e) {
    if (is_shut[e] == 0) add(system, std::move(found[e]));
  }
}

void ExchangeTable::add(const WeightedSystem& system, Exchange&& exchange) {
  if (ranks_.empty()) {
    for (const workload::Device& device : system.devices) {
      first_rank_.push_back(ranks_.size());
      ranks_.resize(ranks_.size() + device.slots.size());
    }
  }
  for (size_t rank = 0; rank < exchange.devices.size(); ++rank) {
    ranks_[first_rank_[exchange.devices[rank]] + static_cast<size_t>(exchange.slot)] = {
        static_cast<int32_t>(exchanges_.size()), static_cast<int32_t>(rank)};
  }
  exchanges_.push_back(std::move(exchange));
}

}  // namespace rostam::runtime
