#include "folding/folding.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "folding/memory.h"
#include "folding/refinement.h"
#include "folding/symmetry.h"
#include "routing/end_points.h"
#include "routing/region_route.h"
#include "sim/interrupt.h"
#include "sim/random.h"

namespace rostam::folding {

using workload::ChannelLister;
using workload::Device;

namespace {

constexpr size_t kMaxHops = size_t{1} << 22;  // beyond it refinement costs more memory than it saves

uint64_t bits_of(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// A directed pair of devices that exchange messages on a slot.
struct Channel {
  int32_t source;
  int32_t destination;  // or a region
  int32_t slot;
  uint64_t label;  // what is sent when, apart from who sends it
  uint32_t route;  // index into System::routes
};

struct System {
  std::vector<Channel> channels;
  std::vector<routing::Route> routes;  // one a pair of accelerators
  size_t num_hops = 0;
};

class SystemBuilder {
 public:
  SystemBuilder(const TaskGraph& graph, const routing::RouteTable& routes)
      : graph_(graph), routes_(routes), lister_(graph), end_points_(routes) {}

  // False if the system is too large to refine.
  bool build() {
    for (int32_t d = 0; d < static_cast<int32_t>(graph_.devices.size()); ++d) {
      if (!add_device(d)) return false;
    }
    return true;
  }
  System system;

 private:
  bool add_device(int32_t d) {
    const auto num_slots = static_cast<int32_t>(lister_.uses_of(graph_.devices[d].program).size());
    for (int32_t slot = 0; slot < num_slots; ++slot) {
      for (const auto& [peer, label] : lister_.peers_of(d, slot)) {
        const bool is_used = routes_.knows_trees() || !workload::is_region(peer);
        if (is_used && !add_channel(d, peer, slot, label)) return false;
      }
      if (routes_.knows_trees()) continue;
      for (const auto& [peer, label] : lister_.pairs_of(d, slot)) {  // what stands for regions
        if (!add_channel(d, peer, slot, label)) return false;
      }
    }
    return true;
  }

  bool add_channel(int32_t source, int32_t destination, int32_t slot, uint64_t label) {
    poll_();
    if (workload::is_region(destination)) return add_region(source, destination, slot, label);
    const int32_t from = graph_.devices[source].accelerator, to = graph_.devices[destination].accelerator;
    auto [entry, is_new] = route_of_.try_emplace(uint64_t(uint32_t(from)) << 32 | uint32_t(to), 0);
    if (is_new) {
      entry->second = static_cast<uint32_t>(system.routes.size());
      system.routes.push_back(*routes_.route_of({from, to, 0}));
      end_points_.check_route(system.routes.back(), from, to);
    }
    const routing::Route& route = system.routes[entry->second];
    system.num_hops += route.links.size();
    label =
        mix(label + mix(uint64_t(route.latency.ps())) + uint64_t(slot) + (graph_.is_inside_server(from, to) ? 29 : 0));
    system.channels.push_back({source, destination, slot, label, entry->second});
    return system.num_hops <= kMaxHops;
  }

  bool add_region(int32_t source, int32_t destination, int32_t slot, uint64_t label) {
    const workload::SlotBinding& binding = graph_.devices[source].slots[slot];
    const int32_t region = workload::region_of(destination);
    std::vector<int32_t> members = graph_.region_members(binding, region);
    bool is_inside = true;
    for (int32_t& member : members) {
      member = graph_.devices[member].accelerator;
      is_inside = is_inside && graph_.is_inside_server(member, members[0]);
    }
    const collectives::Region& one = graph_.regions[region];
    const auto route = static_cast<uint32_t>(system.routes.size());
    const auto owner = static_cast<size_t>(one.place(binding.rank));
    system.routes.push_back(routing::region_route(routes_, one.op, members, owner));
    end_points_.check_region(system.routes.back());
    system.num_hops += system.routes.back().links.size() + members.size();
    label = mix(label + mix(uint64_t(system.routes.back().latency.ps())) + uint64_t(slot) + (is_inside ? 29 : 0));
    system.channels.push_back({source, destination, slot, label, route});
    return system.num_hops <= kMaxHops;
  }

  const TaskGraph& graph_;
  const routing::RouteTable& routes_;
  ChannelLister lister_;
  routing::EndPoints end_points_;
  std::unordered_map<uint64_t, uint32_t> route_of_;
  InterruptPoll poll_;
};

// What tells devices, links and channels apart from the outset: classes of the others follow from these.
std::vector<uint64_t> initial_colours(const TaskGraph& graph, const routing::RouteTable& routes,
                                      const Footprint& footprint, const System& system) {
  std::vector<uint64_t> colours;
  for (const Device& device : graph.devices) {
    colours.push_back(mix(mix(uint64_t(device.program) << 32 | uint32_t(device.job)) + bits_of(device.slowdown) +
                          mix(uint64_t(device.start.ps()))));
  }
  const size_t num_devices = colours.size();
  for (const double capacity : routes.links().capacities) colours.push_back(mix(mix(bits_of(capacity)) + 7));
  for (const Footprint::Link& touched : footprint.links) colours[num_devices + touched.link] += touched.label;
  for (const Channel& channel : system.channels) colours.push_back(mix(channel.label + 11));
  return colours;
}

// Every channel with its ends and the links of its route.
Edges edges_of(const TaskGraph& graph, const System& system, size_t num_links) {
  const size_t num_devices = graph.devices.size();
  constexpr uint32_t kSource = 0, kDestination = 1, kFirstShare = 2;
  std::unordered_map<uint64_t, uint32_t> label_of;  // by share
  const auto visit = [&](const auto& add) {
    auto channel_vertex = static_cast<uint32_t>(num_devices + num_links);
    for (const Channel& channel : system.channels) {
      add(channel_vertex, static_cast<uint32_t>(channel.source), kSource);
      if (workload::is_region(channel.destination)) {
        const workload::SlotBinding& binding = graph.devices[channel.source].slots[channel.slot];
        for (const int32_t member : graph.region_members(binding, workload::region_of(channel.destination))) {
          add(channel_vertex, static_cast<uint32_t>(member), kDestination);
        }
      } else {
        add(channel_vertex, static_cast<uint32_t>(channel.destination), kDestination);
      }
      for (const routing::LinkShare& hop : system.routes[channel.route].links) {
        const auto label = static_cast<uint32_t>(kFirstShare + label_of.size());
        const auto of_share = label_of.try_emplace(bits_of(hop.share), label).first->second;
        add(channel_vertex, static_cast<uint32_t>(num_devices) + static_cast<uint32_t>(hop.link), of_share);
      }
      ++channel_vertex;
    }
  };
  return Edges(num_devices + num_links + system.channels.size(), visit);
}

struct Classes {
  std::vector<int32_t> device, link, channel;
};

// Numbers the classes 0, 1, ... in order of their first members.
std::vector<int32_t> in_order(const int32_t* first, const int32_t* last) {
  std::unordered_map<int32_t, int32_t> index;
  std::vector<int32_t> classes;
  for (; first != last; ++first) {
    classes.push_back(index.try_emplace(*first, static_cast<int32_t>(index.size())).first->second);
  }
  return classes;
}

Classes classes_of(const TaskGraph& graph, const routing::RouteTable& routes, const Footprint& footprint,
                   const System& system) {
  const size_t num_devices = graph.devices.size(), num_links = routes.links().capacities.size();
  const std::vector<int32_t> found =
      refine(initial_colours(graph, routes, footprint, system), edges_of(graph, system, num_links));
  const int32_t *links = found.data() + num_devices, *channels = links + num_links;
  return {in_order(found.data(), links), in_order(links, channels), in_order(channels, found.data() + found.size())};
}

// How many channels and links each class has.
std::vector<int64_t> count_members(const std::vector<int32_t>& classes) {
  std::vector<int64_t> counts;
  for (const int32_t c : classes) {
    if (static_cast<size_t>(c) >= counts.size()) counts.resize(static_cast<size_t>(c) + 1, 0);
    ++counts[c];
  }
  return counts;
}

// Throws unless all links of a class carry as much of each class of channels. Each of those gets a weight at random:
// links whose weighted sums agree carry the same of all, but for a chance that doubles do not resolve.
void check_equitable(const System& system, const std::vector<int32_t>& class_of_channel,
                     const std::vector<int32_t>& class_of_link) {
  std::vector<double> sum(class_of_link.size(), 0);
  for (size_t k = 0; k < system.channels.size(); ++k) {
    constexpr double kUnit = 1.0 / static_cast<double>(uint64_t{1} << 53);
    const double weight = 1 + static_cast<double>(mix(static_cast<uint64_t>(class_of_channel[k])) >> 11) * kUnit;
    for (const routing::LinkShare& hop : system.routes[system.channels[k].route].links) {
      sum[hop.link] += hop.share * weight;
    }
  }
  std::vector<double> of_class;  // of its first link: classes are numbered in the order of those
  for (size_t l = 0; l < sum.size(); ++l) {
    if (static_cast<size_t>(class_of_link[l]) == of_class.size()) of_class.push_back(sum[l]);
    const double first = of_class[class_of_link[l]];
    ROSTAM_CHECK(std::abs(first - sum[l]) <= 1e-9 * first, "folding is not equitable: links of class "
                                                               << class_of_link[l] << " carry " << first << " and "
                                                               << sum[l] << " of all flows, each class weighted");
  }
}

// Routes of the simulated devices' channels on simulated links. The flows of a class load every link of a class alike,
// each with what it puts on all of them: the class's number of flows times that, over the number of links, stands for
// them, shared out where a device sends several flows of one class at once.
void add_quotient_routes(const System& full, const std::vector<int32_t>& class_of_channel, WeightedSystem& system) {
  check_equitable(full, class_of_channel, system.link_stand_in);
  const std::vector<int64_t> num_channels = count_members(class_of_channel);
  const std::vector<int64_t> num_links = count_members(system.link_stand_in);
  system.routes.resize(system.channels.size());
  std::unordered_map<uint64_t, int32_t> flows_of_class;
  const auto is_simulated = [&system](int32_t device) {
    return system.original[system.device_stand_in[device]] == device;
  };
  for (size_t k = 0; k < full.channels.size(); ++k) {
    const int32_t source = full.channels[k].source;
    if (is_simulated(source)) ++flows_of_class[uint64_t(uint32_t(source)) << 32 | uint32_t(class_of_channel[k])];
  }
  std::vector<double> shares(num_links.size(), 0);
  for (size_t k = 0; k < full.channels.size(); ++k) {
    const Channel& channel = full.channels[k];
    if (!is_simulated(channel.source)) continue;
    const int32_t flows = flows_of_class[uint64_t(uint32_t(channel.source)) << 32 | uint32_t(class_of_channel[k])];
    routing::Route route;
    route.latency = full.routes[channel.route].latency;
    route.ends = full.routes[channel.route].ends;
    for (const routing::LinkShare& hop : full.routes[channel.route].links) {
      const int32_t link = system.link_stand_in[hop.link];
      if (shares[link] == 0) route.links.push_back({link, 0});
      shares[link] += hop.share;
    }
    for (routing::LinkShare& hop : route.links) {
      hop.share = std::exchange(shares[hop.link], 0) * static_cast<double>(num_channels[class_of_channel[k]]) /
                  (static_cast<double>(num_links[hop.link]) * flows);
    }
    const int32_t source = system.device_stand_in[channel.source];
    system.routes[system.channels.find(source, channel.slot, channel.destination)] = std::move(route);
  }
}

WeightedSystem make_system(std::shared_ptr<const TaskGraph> graph, const System& full, Classes&& classes,
                           const routing::RouteTable& routes) {
  WeightedSystem system;
  system.graph = std::move(graph);
  system.is_folded = true;
  system.device_stand_in = std::move(classes.device);
  system.link_stand_in = std::move(classes.link);
  system.weights.assign(count_members(system.device_stand_in).size(), 0);
  for (size_t d = 0; d < system.device_stand_in.size(); ++d) {
    const int32_t simulated = system.device_stand_in[d];
    if (system.weights[simulated]++ > 0) continue;  // classes are numbered in the order of their first devices
    system.original.push_back(static_cast<int32_t>(d));
    system.devices.push_back(system.graph->devices[d]);
  }
  std::vector<double> capacities(count_members(system.link_stand_in).size(), 0);
  for (size_t l = 0; l < system.link_stand_in.size(); ++l)
    capacities[system.link_stand_in[l]] = routes.links().capacities[l];
  system.links = network::LinkTable(capacities);
  system.channels = workload::ChannelTable(*system.graph, system.original);
  add_quotient_routes(full, classes.channel, system);
  return system;
}

}  // namespace

WeightedSystem unfolded(std::shared_ptr<const TaskGraph> graph, const routing::RouteTable& routes) {
  check_memory(*graph, routes);
  WeightedSystem system;
  system.graph = std::move(graph);
  system.devices = system.graph->devices;
  system.weights.assign(system.devices.size(), 1);
  system.device_stand_in.resize(system.devices.size());
  std::iota(system.device_stand_in.begin(), system.device_stand_in.end(), 0);
  system.original = system.device_stand_in;
  system.links = network::LinkTable(routes.links());
  system.link_stand_in.resize(routes.links().capacities.size());
  std::iota(system.link_stand_in.begin(), system.link_stand_in.end(), 0);
  system.channels = workload::ChannelTable(*system.graph, system.original);
  return system;
}

WeightedSystem fold(std::shared_ptr<const TaskGraph> graph, const routing::RouteTable& routes,
                    const Footprint& footprint) {
  // Routes with lanes are not quotients: planes that differ are simulated one by one.
  const bool is_open = footprint.is_any || !routes.is_hash_free() || routes.planes().size() > 1;
  if (is_open) return unfolded(std::move(graph), routes);
  if (auto system = fold_by_symmetry(graph, routes, footprint)) return *std::move(system);
  SystemBuilder builder(*graph, routes);
  try {
    if (!builder.build()) return unfolded(std::move(graph), routes);
  } catch (const NoRouteError&) {  // the run names the pair of the first message without a path, folded or not
    return unfolded(std::move(graph), routes);
  }
  Classes classes = classes_of(*graph, routes, footprint, builder.system);
  if (count_members(classes.device).size() == graph->devices.size()) return unfolded(std::move(graph), routes);
  return make_system(std::move(graph), builder.system, std::move(classes), routes);
}

}  // namespace rostam::folding
