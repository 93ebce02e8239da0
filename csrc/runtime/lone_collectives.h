// LoneCollectives: collectives of groups all of whose ranks one simulated device stands for, as folded tensor-parallel
// groups are, by schedules of one message a step (halving and doubling, say). While nothing else uses their links step
// k lasts
//   tx[k] + latency[k],
// so that a collective is one event. Another message onto those links disturbs it: the session then goes on message by
// message from where it stands, until a step ends with the links quiet again. Rings are for quiet_rings.h.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "runtime/ring_table.h"
#include "runtime/stepwise_runner.h"
#include "sim/few_list.h"

namespace rostam::runtime {

class LoneCollectives {
 public:
  // takes_any: no controller acts on the run; else there are none. rings: whose links are not taken. All arguments must
  // outlive it. Cost: the channels of the groups that it takes x links a route, up to 4 M of those.
  LoneCollectives(const RunnerParts& parts, StepwiseRunner& stepwise, const routing::RouteTable& routes,
                  const RingTable& rings, bool takes_any);

  // Whether collectives of the device's slot are lone.
  bool has(int32_t device, int32_t slot) const { return index_of_slot(device, slot) != kNone; }
  // A rank that has entered its collective. REQUIRES: has().
  void join(const TaskRef& task, int32_t slot, uint32_t occurrence);
  // A message of a collective that was disturbed has come. Returns whether what is left goes without messages again.
  // REQUIRES: has() its target and slot.
  bool goes_on_quietly(const Message& message);

  void on_new_route(network::RouteId route, const routing::Route& links, int32_t device, int32_t slot);
  void before_send(network::RouteId route);
  void after_sent(network::RouteId route);

  // Adds what was carried without messages up to `now`; counts the same at the devices, for the end of a run.
  void add_loads(SimTime now, network::NetworkStats& stats) const;
  void count_carried(SimTime now);

 private:
  static constexpr int32_t kNone = -1;
  struct Send {  // to one peer
    int32_t peer = 0;
    routing::Route route;
    double bytes_per_s = 0;  // of a message alone
  };
  struct Step {
    int32_t send = 0;  // index into Group::sends
    int64_t num_chunks = 0;
  };
  using Steps = std::vector<std::pair<int32_t, std::vector<Step>>>;  // of each schedule
  // A step of a collective of some size; times since it began.
  struct Leg {
    int32_t send = 0;
    int64_t num_chunks = 0;
    int64_t bytes = 0;       // of its message
    int64_t wire_bytes = 0;  // of it that the simulated plane carries, the protocol's own included
    SimTime start, sent, arrival;
  };
  struct Timing {
    int32_t schedule = 0, protocol = 0;
    int64_t chunk_bytes = 0;
    bool fits_clock = true;
    std::vector<Leg> legs;
  };
  // What groups alike have in common: hundreds of stages and replicas share a few.
  struct Kind {
    Steps steps;
    std::vector<double> bytes_per_s;  // of each send
    std::vector<SimTime> latencies;
    std::vector<uint8_t> is_inside_server;
    std::vector<Timing> timings;  // of what has been exchanged so far
    bool operator==(const Kind& other) const;
  };
  struct Load {  // bytes on the wire
    double bytes = 0;
    int64_t busy_ps = 0;
  };
  struct Group {
    int32_t device = 0;
    int32_t slot = 0;
    int32_t kind = 0;
    int32_t num_visitors = 0;  // messages of others on its links
    // Of the collective that is under way without messages, if one is: its first step that goes so.
    bool is_quiet = false;
    int32_t timing = 0;
    size_t first_leg = 0;
    uint32_t occurrence = 0;
    SimTime start;                  // as if all of it had gone so
    std::vector<int64_t> num_done;  // by timing: collectives that went without messages
    std::vector<Load> loads;        // by send: of parts of collectives
    std::vector<Send> sends;
  };

  int32_t index_of_slot(int32_t device, int32_t slot) const {
    return index_.empty() ? kNone : index_[first_slot_[device] + static_cast<size_t>(slot)];
  }
  const Timing& timing_of(const Group& group) const { return kinds_[group.kind].timings[group.timing]; }
  bool add_group(int32_t device, int32_t slot, const std::vector<int32_t>& schedules, const RingTable& rings,
                 size_t& num_hops);
  bool add_steps(int32_t schedule, size_t& num_hops, Group& group, Steps& steps) const;
  int32_t kind_of(const Group& group, Steps&& steps);
  bool claim_links(const RingTable& rings, const Group& group);
  int32_t find_timing(Kind& kind, const Participation& part) const;
  void begin(Group& group, Participation& part, int32_t timing, uint32_t occurrence, size_t first_leg);
  void end(uint64_t device_and_slot);
  void fetch_end(uint64_t device_and_slot) const;
  void disturb(Group& group);
  int32_t make_message(const Group& group, const Participation& part, const Leg& leg, int32_t step);
  // Calls visit(group, send, bytes on the wire, picoseconds busy) for what was carried up to `now`.
  template <typename Visit>
  void for_each_load(SimTime now, Visit visit) const;

  RunnerParts parts_;
  StepwiseRunner& stepwise_;
  const routing::RouteTable& routes_;
  MemberEvent<LoneCollectives> ends_;
  std::vector<Kind> kinds_;
  std::vector<Group> groups_;
  std::vector<size_t> first_slot_;             // per simulated device, into index_
  std::vector<int32_t> index_;                 // per slot of every device: its group; none where there are no groups
  std::vector<int32_t> owner_;                 // per link: the group whose messages use it
  std::deque<FewList<int32_t, 4>> crossings_;  // per route: groups of others whose links it uses
};

}  // namespace rostam::runtime
