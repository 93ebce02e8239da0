// dragonfly: groups of virtual routers, all joined to all inside a group; global cables join the groups as evenly as
// they come. A switch holds routers_per_switch virtual routers, which need no cable between them.
// Global port i of a group (router i / h) goes to the group 1 + i mod (g - 1) further on, in as many rounds as all
// groups have ports for; ports left over go 1, -1, 2, -2, ... groups on, the last one, if odd, to the opposite group.
// Paths: at most one global cable; phase 0 before it, 1 behind it. Pairs that failures leave without such a path take
// the shortest ones there are, over two global cables or more. Numbering: switches group by group.
// Source: Kim, Dally, Scott, Abts, "Technology-Driven, Highly-Scalable Dragonfly Topology", ISCA 2008, section 3;
// two virtual routers in a switch: HammingMesh, appendix C.
#include "fabric/registry.h"
#include "fabric/routers.h"

namespace rostam::fabric {

namespace {

class OneGlobal : public PathRule {
 public:
  OneGlobal(int32_t first_switch, int32_t group_size) : first_switch_(first_switch), group_size_(group_size) {}
  int32_t num_phases() const override { return 2; }
  int32_t next_phase(int32_t phase, const Link& link) const override {
    if (link.src < first_switch_ || link.dst < first_switch_) return phase;
    if ((link.src - first_switch_) / group_size_ == (link.dst - first_switch_) / group_size_) return phase;
    return phase == 0 ? 1 : -1;
  }

 private:
  int32_t first_switch_, group_size_;
};

// Any walk: phase k is behind k global cables, kMost behind as many or more.
class AnyGlobals : public PathRule {
 public:
  AnyGlobals(int32_t first_switch, int32_t group_size) : first_switch_(first_switch), group_size_(group_size) {}
  int32_t num_phases() const override { return kMost + 1; }
  int32_t next_phase(int32_t phase, const Link& link) const override {
    if (link.src < first_switch_ || link.dst < first_switch_) return phase;
    if ((link.src - first_switch_) / group_size_ == (link.dst - first_switch_) / group_size_) return phase;
    return phase < kMost ? phase + 1 : kMost;
  }

 private:
  static constexpr int32_t kMost = 2;
  int32_t first_switch_, group_size_;
};

// A virtual channel more with every cable between switches, and one global cable at most: local, local, global, local,
// local around failures.
class LocalGlobalLocal : public PathRule {
 public:
  LocalGlobalLocal(int32_t first_switch, int32_t group_size) : first_switch_(first_switch), group_size_(group_size) {}
  int32_t num_phases() const override { return 6; }  // 0 to 2 before the global cable, 3 to 5 behind it
  int32_t next_phase(int32_t phase, const Link& link) const override {
    if (link.src < first_switch_ || link.dst < first_switch_) return phase;
    if ((link.src - first_switch_) / group_size_ != (link.dst - first_switch_) / group_size_) return phase < 3 ? 3 : -1;
    return phase % 3 < 2 ? phase + 1 : -1;
  }

 private:
  int32_t first_switch_, group_size_;
};

// A local, a global and a local cable, each once at most and on a virtual channel of its own.
class OneOfEach : public PathRule {
 public:
  OneOfEach(int32_t first_switch, int32_t group_size) : first_switch_(first_switch), group_size_(group_size) {}
  int32_t num_phases() const override { return 4; }  // 0 at the start, then behind the local, global, local one
  int32_t next_phase(int32_t phase, const Link& link) const override {
    if (link.src < first_switch_) return phase == 0 ? 0 : -1;
    if (link.dst < first_switch_) return phase;
    if ((link.src - first_switch_) / group_size_ != (link.dst - first_switch_) / group_size_) return phase < 2 ? 2 : -1;
    return phase % 2 == 0 ? phase + 1 : -1;
  }

 private:
  int32_t first_switch_, group_size_;
};

struct Groups {
  explicit Groups(const Params& params)
      : count(params.integer("num_groups")),
        routers(params.integer("routers_per_group")),
        routers_per_switch(params.integer("routers_per_switch")),
        terminals(params.integer("terminals_per_router")),
        global_links(params.integer("global_links_per_router")) {}

  int32_t switches() const { return routers / routers_per_switch; }  // of a group
  int32_t switch_of_port(int32_t group, int32_t port) const {
    return group * switches() + port / global_links / routers_per_switch;
  }
  // Groups onwards of port i's other end, which is the port of the same round that is as many groups back.
  int32_t offset(int32_t port) const { return 1 + port % (count - 1); }

  int32_t count, routers, routers_per_switch, terminals, global_links;
};

// Calls join(group, port, other group, its port) once for each global cable.
template <typename Join>
void for_each_global_cable(const Groups& groups, const Join& join) {
  const int32_t ports = groups.routers * groups.global_links, others = groups.count - 1;
  if (others == 0) return;
  const int32_t even = ports / others * others, left = ports - even;
  for (int32_t group = 0; group < groups.count; ++group) {
    for (int32_t port = 0; port < even; ++port) {
      const int32_t other = (group + groups.offset(port)) % groups.count;
      const int32_t back = port / others * others + groups.count - groups.offset(port) - 1;
      if (group < other) join(group, port, other, back);
    }
    for (int32_t pair = 0; 2 * pair + 1 < left; ++pair) {
      join(group, even + 2 * pair, (group + pair + 1) % groups.count, even + 2 * pair + 1);
    }
    if (left % 2 == 1 && groups.count % 2 == 0 && group < groups.count / 2) {
      join(group, ports - 1, group + groups.count / 2, ports - 1);
    }
  }
}

}  // namespace

Blueprint design_dragonfly(const Params& params) {
  const Groups groups(params);
  const int32_t per_group = groups.switches();
  Blueprint plan =
      design_routers("dragonfly", groups.count * per_group, groups.routers_per_switch * groups.terminals, params);
  const double capacity = params.rate("link_bandwidth_bytes_per_s");
  const SimTime latency = params.time("link_latency_s");
  const int32_t first = plan.num_accelerators;
  for (int32_t s = 0; s < plan.num_switches; ++s) {
    for (int32_t other = s + 1; other < (s / per_group + 1) * per_group; ++other) {
      for (int32_t k = 0; k < groups.routers_per_switch * groups.routers_per_switch; ++k) {
        plan.add_cable(first + s, first + other, capacity, latency);
      }
    }
  }
  for_each_global_cable(groups, [&](int32_t group, int32_t port, int32_t other, int32_t back) {
    plan.add_cable(first + groups.switch_of_port(group, port), first + groups.switch_of_port(other, back), capacity,
                   latency);
  });
  plan.turn_rule = std::make_shared<LocalGlobalLocal>(first, per_group);
  plan.escape_rule = std::make_shared<OneOfEach>(first, per_group);
  plan.path_rule = std::make_shared<OneGlobal>(first, per_group);
  plan.detour_rule = std::make_shared<AnyGlobals>(first, per_group);
  return plan;
}

}  // namespace rostam::fabric
