#include "folding/symmetry.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "routing/end_points.h"
#include "routing/symmetry.h"
#include "sim/interrupt.h"

namespace rostam::folding {

using routing::Orbits;
using workload::ChannelLister;
using workload::Device;
using workload::TaskGraph;

namespace {

constexpr int64_t kManyChannels = int64_t{1} << 16;  // refinement looks at fewer in a few tenths of a second

using Map = std::vector<int32_t>;  // image of every one

// Whether a schedule is the same whatever the order of the ranks: each sends every other one the same in one step.
bool is_symmetric(const collectives::Schedule& schedule) { return schedule.shape().is_all_alike; }

class SymmetryChecker {
 public:
  SymmetryChecker(const TaskGraph& graph, const routing::RoutePolicy& policy)
      : graph_(graph), fabric_(policy.fabric()), links_(policy.links()), lister_(graph) {
    device_on_.assign(fabric_.num_accelerators(), -1);
    for (size_t d = 0; d < graph_.devices.size(); ++d) {
      int32_t& on = device_on_[graph_.devices[d].accelerator];
      is_single_ = is_single_ && on < 0;
      on = static_cast<int32_t>(d);
    }
    sort_groups();
  }

  // An accelerator with two devices, of two jobs, is no place to look for symmetry.
  bool is_single() const { return is_single_; }

  int64_t count_channels() {
    int64_t count = 0;
    for (const Device& device : graph_.devices) {
      const auto& uses = lister_.uses_of(device.program);
      for (size_t slot = 0; slot < uses.size(); ++slot) {
        for (const int32_t schedule : uses[slot]) {
          if (schedule >= 0 && is_symmetric(*graph_.schedules[schedule])) {
            count += static_cast<int64_t>(graph_.groups[device.slots[slot].group].size()) - 1;
          }
        }
      }
    }
    return count;
  }

  // The images of engine links and devices, if the map takes the system onto itself.
  struct Images {
    Map link, device;
  };
  std::optional<Images> check(const Map& map) {
    poll_interrupt();
    auto links = routing::image_of_links(fabric_, links_, map);
    Images images;
    if (!links.has_value() || !map_servers(map) || !map_devices(map, images.device)) return std::nullopt;
    images.link = *std::move(links);
    return images;
  }

 private:
  bool map_servers(const Map& map) const {
    if (graph_.server_size <= 0) return true;
    for (int32_t a = 0; a < fabric_.num_accelerators(); ++a) {
      const int32_t first = a / graph_.server_size * graph_.server_size;
      if (!graph_.is_inside_server(map[a], map[first])) return false;
    }
    return true;
  }

  bool map_devices(const Map& map, Map& image) {
    image.resize(graph_.devices.size());
    for (size_t d = 0; d < image.size(); ++d) {
      const Device& device = graph_.devices[d];
      if (map[device.accelerator] >= fabric_.num_accelerators()) return false;
      image[d] = device_on_[map[device.accelerator]];
      if (image[d] < 0) return false;
      const Device& other = graph_.devices[image[d]];
      const bool is_alike = device.program == other.program && device.job == other.job &&
                            device.slowdown == other.slowdown && device.start == other.start &&
                            device.slots.size() == other.slots.size();
      if (!is_alike) return false;
    }
    image_of_group_.assign(graph_.groups.size(), -1);
    for (size_t d = 0; d < image.size(); ++d) {
      if (!map_peers(static_cast<int32_t>(d), image)) return false;
    }
    return true;
  }

  // Whether the device's image sends to the images of its peers what it sends to them.
  bool map_peers(int32_t d, const Map& image) {
    const Device &device = graph_.devices[d], &other = graph_.devices[image[d]];
    const std::vector<std::vector<int32_t>>& uses = lister_.uses_of(device.program);
    for (size_t slot = 0; slot < uses.size(); ++slot) {
      const bool is_all_alike = std::all_of(uses[slot].begin(), uses[slot].end(), [this](int32_t schedule) {
        return schedule >= 0 && is_symmetric(*graph_.schedules[schedule]);
      });
      if (is_all_alike) {
        if (!uses[slot].empty() && !map_group(device.slots[slot].group, other.slots[slot].group, image)) return false;
        continue;
      }
      Peers peers = lister_.peers_of(d, static_cast<int32_t>(slot));
      for (auto& [peer, label] : peers) peer = image[peer];
      Peers others = lister_.peers_of(image[d], static_cast<int32_t>(slot));
      std::sort(peers.begin(), peers.end());
      std::sort(others.begin(), others.end());
      if (peers != others) return false;
    }
    return true;
  }

  // Whether the members of a group are mapped onto those of another; looked at once for each group.
  bool map_group(int32_t group, int32_t other, const Map& image) {
    int32_t& known = image_of_group_[group];
    if (known >= 0) return known == other;
    known = other;
    std::vector<int32_t> members;
    for (const int32_t member : graph_.groups[group]) members.push_back(image[member]);
    std::sort(members.begin(), members.end());
    return members == sorted_groups_[other];
  }

  void sort_groups() {
    sorted_groups_ = graph_.groups;
    for (std::vector<int32_t>& members : sorted_groups_) std::sort(members.begin(), members.end());
  }

  using Peers = std::vector<std::pair<int32_t, uint64_t>>;
  const TaskGraph& graph_;
  const fabric::Fabric& fabric_;
  const routing::EngineLinks& links_;
  ChannelLister lister_;
  std::vector<int32_t> device_on_;
  bool is_single_ = true;
  std::vector<std::vector<int32_t>> sorted_groups_;
  std::vector<int32_t> image_of_group_;
};

using Images = SymmetryChecker::Images;

// The devices, each with the first of those that maps that keep `device` where it is take it to.
Orbits orbits_round(int32_t device, const std::vector<Images>& symmetries) {
  Orbits orbits(symmetries.front().device.size());
  for (const Images& images : symmetries) {
    if (images.device[device] != device) continue;
    for (size_t d = 0; d < images.device.size(); ++d) orbits.join(static_cast<int32_t>(d), images.device[d]);
  }
  return orbits;
}

// Routes on the orbits of links. The flows that stand for a device's load every link of an orbit alike, each with what
// it puts on all of them, over their number: as many as what a map that keeps the device takes a flow to.
class OrbitRoutes {
 public:
  OrbitRoutes(const routing::RouteTable& routes, const WeightedSystem& system, std::vector<int64_t> links_of_orbit)
      : routes_(routes),
        system_(system),
        end_points_(routes),
        links_of_orbit_(std::move(links_of_orbit)),
        shares_(links_of_orbit_.size(), 0) {}

  // From a simulated device to another one.
  routing::Route make(int32_t d, int32_t peer) {
    const int32_t from = system_.devices[d].accelerator, to = system_.graph->devices[peer].accelerator;
    const routing::Route whole = *routes_.route_of({from, to, 0});
    end_points_.check_route(whole, from, to);
    routing::Route route;
    route.latency = whole.latency;
    for (const routing::LinkShare& hop : whole.links) {
      const int32_t orbit = system_.link_stand_in[hop.link];
      if (shares_[orbit] == 0) route.links.push_back({orbit, 0});
      shares_[orbit] += hop.share;
    }
    for (routing::LinkShare& hop : route.links) {
      hop.share = std::exchange(shares_[hop.link], 0) * static_cast<double>(system_.weights[d]) /
                  static_cast<double>(links_of_orbit_[hop.link]);
    }
    return route;
  }

 private:
  const routing::RouteTable& routes_;
  const WeightedSystem& system_;
  routing::EndPoints end_points_;
  std::vector<int64_t> links_of_orbit_;
  std::vector<double> shares_;  // scratch, 0 between calls
};

// Of the simulated devices' channels.
void add_routes(OrbitRoutes&& routes, const std::vector<Images>& symmetries, WeightedSystem& system) {
  constexpr uint32_t kNone = ~uint32_t{0};
  system.routes.resize(system.channels.size());
  std::vector<uint32_t> channel_to(system.graph->devices.size(), kNone);  // from this device to the first of an orbit
  for (int32_t d = 0; d < static_cast<int32_t>(system.devices.size()); ++d) {
    Orbits peers = orbits_round(system.original[d], symmetries);
    std::fill(channel_to.begin(), channel_to.end(), kNone);
    for (int32_t slot = 0; slot < static_cast<int32_t>(system.devices[d].slots.size()); ++slot) {
      for (const int32_t peer : system.channels.destinations(d, slot)) {
        const workload::ChannelId channel = system.channels.find(d, slot, peer);
        uint32_t& like = channel_to[peers.find(peer)];
        system.routes[channel] = like == kNone ? routes.make(d, peer) : system.routes[like];
        like = channel;
      }
    }
  }
}

WeightedSystem make_system(std::shared_ptr<const TaskGraph> graph, Orbits& devices, Orbits& links,
                           const std::vector<Images>& symmetries, const routing::RouteTable& routes) {
  WeightedSystem system;
  system.graph = std::move(graph);
  system.is_folded = true;
  int32_t num_devices = 0, num_links = 0;
  system.device_stand_in = devices.numbers(num_devices);
  system.link_stand_in = links.numbers(num_links);
  system.weights.assign(num_devices, 0);
  for (size_t d = 0; d < system.device_stand_in.size(); ++d) {
    if (system.weights[system.device_stand_in[d]]++ > 0) continue;
    system.original.push_back(static_cast<int32_t>(d));
    system.devices.push_back(system.graph->devices[d]);
  }
  std::vector<double> capacities(num_links, 0);
  std::vector<int64_t> links_of_orbit(num_links, 0);
  for (size_t l = 0; l < system.link_stand_in.size(); ++l) {
    capacities[system.link_stand_in[l]] = routes.links().capacities[l];
    ++links_of_orbit[system.link_stand_in[l]];
  }
  system.links = network::LinkTable(capacities);
  system.channels = workload::ChannelTable(*system.graph, system.original);
  add_routes(OrbitRoutes(routes, system, std::move(links_of_orbit)), symmetries, system);
  return system;
}

}  // namespace

std::optional<WeightedSystem> fold_by_symmetry(std::shared_ptr<const TaskGraph> graph,
                                               const routing::RouteTable& routes, const Footprint& footprint) {
  const routing::RoutePolicy& policy = *routes.planes().front().policy;
  const bool is_plain = routes.planes().size() == 1 && routes.version() == 0 && policy.follows_symmetries() &&
                        !footprint.is_any && footprint.links.empty() && graph->regions.empty();
  if (!is_plain) return std::nullopt;
  SymmetryChecker checker(*graph, policy);
  if (!checker.is_single() || checker.count_channels() < kManyChannels) return std::nullopt;
  Orbits devices(graph->devices.size()), links(routes.links().capacities.size());
  std::vector<Images> symmetries;
  for (const Map& map : policy.fabric().symmetries()) {
    auto images = checker.check(map);
    if (!images.has_value()) continue;
    for (size_t d = 0; d < images->device.size(); ++d) devices.join(static_cast<int32_t>(d), images->device[d]);
    for (size_t l = 0; l < images->link.size(); ++l) links.join(static_cast<int32_t>(l), images->link[l]);
    symmetries.push_back(*std::move(images));
  }
  if (symmetries.empty()) return std::nullopt;
  return make_system(std::move(graph), devices, links, symmetries, routes);
}

}  // namespace rostam::folding
