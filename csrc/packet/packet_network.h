// PacketNetwork: the packet tier. Messages are cut into packets, which walk the steps of their routes from buffer to
// buffer: finite buffers, credits, virtual channels, choices made where a packet is.
//
// A packet that starts on a link is on it for bytes / bandwidth, rounded up to 1 ps, and is never held up there. Its
// head is at the next vertex the link's latency later; that passes it on (virtual cut-through) once the first flit is
// in, the vertex' own latency (forward_latency: input to output buffer) later, and never sends faster than it receives.
// There the packet chooses its next link and waits for it in line with those that came in over the same port; the
// ports, and what begins at the vertex as one port more, take turns at every virtual channel of a link, and the
// channels at the link. It starts when the link is free, the buffer behind the link's virtual channel has room for all
// of it, and its own port feeds fewer than crossbar_speedup outputs; the room in its buffer comes back to the sender
// when its tail has left and the link's latency has passed. So an idle network of equal links takes what flows take
// (MODEL A3), and a flit for each link but the first more. A message begins one packet at a time on every link: its
// next packet chooses as the one before starts.
//
// Choices: routing spray, and whatever has several next hops without choosing by load, takes them in turn at each
// place; adaptive takes the least loaded working one, by bytes in line for the link and taken of the buffer behind it;
// what goes by load (turns_adaptive) waits for all of them and takes the first with room, packets on their way ahead of
// messages: where both took turns a torus of 8 x 8 under an all-to-all carried a third of what it can, its buffers
// full; ugal and valiant draw a vertex for each packet (routing::Detours). Capacities that change hold from the next
// packet on; links of capacity 0 hold what waits for them until they work again or the message is given another route.
// Always checked: links carry one packet at a time, buffers never overflow, all room comes back, and every byte that a
// message has sent arrives.
//
// Example: make_network("packet", queue, LinkTable::for_packets(routes, false), client)->start({route, bytes, token});
// Sources: Dally and Towles, Principles and Practices of Interconnection Networks (2004), chapters 13 (cut-through,
// credits), 17 (input buffers); Hoefler et al., HammingMesh (SC 2022), appendix F (sizes, latencies, speed-up);
// virtual output queues and turns: own.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "network/network.h"
#include "packet/claims.h"
#include "packet/credits.h"
#include "packet/path_pool.h"
#include "packet/wait_lines.h"

namespace rostam::packet {

class PacketNetwork : public network::Network {
 public:
  // `queue` and `client` must outlive the network. links: LinkTable::for_packets.
  PacketNetwork(EventQueue& queue, const network::LinkTable& links, network::NetworkClient& client);

  void set_packets(const network::PacketOptions& options) override;
  // Of a route without steps its links are those of one path. Throws: ConfigError where they are not.
  network::RouteId add_route(const routing::Route& route, uint64_t name) override;
  std::vector<int32_t> links_of(network::RouteId route) const override;
  network::TransferId start(const network::Transfer& transfer) override;
  network::TransferId resume(const network::Transfer& transfer, SimTime started) override;
  void cancel(network::TransferId message) override;
  void set_route(network::TransferId message, network::RouteId route) override;
  void set_capacity(int32_t link, double bytes_per_s) override;
  int32_t add_links(const std::vector<network::EngineLink>& links) override;
  void remove_links(const std::vector<int32_t>& links) override;
  double backlog(network::TransferId message) const override;
  bool is_endless(network::TransferId /*message*/) const override { return false; }
  double backlog(int32_t src, int32_t dst) const override;
  double bytes_waiting(int32_t link) const override;
  network::NetworkStats stats() const override;
  std::vector<routing::Stray> strays() const override;
  std::string note() const override;
  std::string describe_stall() const override;
  int32_t num_links() const override { return static_cast<int32_t>(links_.size()); }

  struct RouteState {
    int32_t src = -1, dst = -1;
    SimTime latency;
    int64_t overhead_ps = 0;  // besides that of its links and vertices
    std::vector<uint32_t> roots;
    routing::Detours detours;
    uint32_t turn = 0;   // of packets over several roots
    uint64_t draws = 0;  // of packets that draw
    bool is_adaptive = false;
    bool is_by_load = false;
  };
  // For what replays messages (episodes.h): from now on events are those of `queue`, whose clock is the network's; and
  // what messages change besides packets.
  void use(EventQueue& queue) { queue_ = &queue; }
  Links& links() { return links_; }
  PathPool& paths() { return pool_; }
  const RouteState& route(network::RouteId id) const { return routes_[id]; }
  const network::PacketOptions& options() const { return options_; }

 private:
  // Where a packet is on its way, or the next packet of a message: the node of its next hops, and behind the end of
  // that part of the way the node where it goes on. `other`: of the way that it may take instead, as long as the two
  // go the same way.
  struct Way {
    uint32_t node = PathPool::kEnd, then = kNone;
    uint32_t other = kNone, other_then = kNone;
  };
  struct alignas(64) Packet {
    Way way;
    uint32_t message = 0;
    uint32_t route = 0;
    uint32_t hop = 0;                              // that it has chosen
    uint32_t channel_in = 0;                       // whose buffer it is in
    int64_t bytes = 0;                             // 0: there is no such packet
    int64_t tail_ps = 0;                           // when its tail could be passed on
    bool is_adaptive = false, is_by_load = false;  // its route
  };
  struct Message {
    uint64_t token = 0;
    int64_t bytes = 0, landed = 0;  // in all, and on or through their last links
    int64_t left = 0;               // bytes of packets that have not started, or start again
    int64_t in_flight = 0;          // of packets that have, and have not arrived
    double rate_cap = 0;
    SimTime extra_latency;
    int64_t next_ps = 0;  // its cap lets the next packet start
    int64_t sent_ps = 0, arrived_ps = 0;
    uint32_t route = 0;
    uint32_t version = 0;  // of this place
    Way way;               // of its next packet
    uint32_t hop = 0;
    int64_t next_bytes = 0;  // of that packet, while it is in line; 0: it is not
    bool is_active = false;  // started and not yet delivered or cancelled and gone
    bool is_sent = false;    // and its client knows
    bool is_due = false;     // an event will put its next packet in line
    bool is_cancelled = false;
  };
  enum class Kind : uint32_t { kArrive, kLine, kWake, kNext, kSent, kDelivered, kRescue };
  class Events : public EventHandler {
   public:
    explicit Events(PacketNetwork& owner) : owner_(owner) {}
    void on_event(uint64_t payload) override { owner_.on_event(payload); }
    void fetch(uint64_t payload) const override { owner_.fetch(payload, 0); }
    void fetch_stage(uint64_t payload, uint32_t stage) const override { owner_.fetch(payload, stage); }

   private:
    PacketNetwork& owner_;
  };

  int64_t now_ps() const { return queue_->now().ps(); }
  void schedule(int64_t at_ps, Kind kind, uint32_t id, uint32_t version = 0, Priority priority = Priority::kNormal);
  void on_event(uint64_t payload);
  void fetch(uint64_t payload, uint32_t stage) const;

  // choice.cpp
  void draw_way(RouteState& route, uint64_t name, Way& way);
  uint32_t leg(const std::shared_ptr<const routing::Waypoints>& legs, int32_t from, int32_t to, int32_t part);
  uint32_t choose(Way& way, bool is_adaptive);
  uint32_t pick(uint32_t node, bool is_adaptive);
  int64_t load(uint32_t hop);
  bool takes_other(const Way& way, uint32_t hop, uint32_t other_hop);
  bool advance(Way& way, uint32_t hop) const;
  static void go_on(uint32_t& node, uint32_t& then);

  // switching.cpp
  void put_next_in_line(uint32_t message);
  void arrive(uint32_t packet);
  void approach(uint32_t packet);
  void put_in_line(uint32_t packet);
  void push_in_line(uint32_t packet);
  void serve(uint32_t link);
  bool serve_next(uint32_t link, int64_t& next_ps);
  bool serve_lines(uint32_t link, int64_t& next_ps);
  bool may_go(uint32_t channel, uint32_t port, uint32_t id, int64_t& next_ps);
  void wake_at(uint32_t link, int64_t at_ps);
  int64_t occupy(uint32_t link, uint32_t channel, int64_t bytes);
  void start_next(uint32_t message);
  void pass_on(uint32_t packet);
  void enter(uint32_t packet, const PathHop& hop, int64_t tail_ps);
  void leave_buffer(uint32_t channel, int64_t bytes, int64_t tail_ps);
  int64_t read_end_ps(uint32_t link) const;
  void land(uint32_t message, int64_t bytes, int64_t at_ps);
  uint32_t new_packet();
  void free_packet(uint32_t packet);

  // dependencies.cpp
  std::vector<uint32_t> find_dependency_circle() const;
  std::string describe_channel(uint32_t channel) const;

  // by_load.cpp
  int64_t earliest_ps(const Packet& packet) const;
  void claim(uint32_t packet);
  void claim_for_message(uint32_t message);
  uint32_t free_hop(uint32_t port, uint32_t id, uint32_t node);
  void stand(uint32_t port, uint32_t id, uint32_t node, int64_t bytes);
  void leave_lines(Claims& claims, uint32_t id, int64_t bytes);
  Claims& claims_of(uint32_t port) { return port == WaitLines::kMessages ? message_claims_ : packet_claims_; }
  bool serve_claims(uint32_t link, Claims& claims, int64_t& next_ps);

  // rescue.cpp
  bool is_stale(const Packet& packet) const;
  void request_rescue();
  void rescue();
  void redirect(uint32_t packet);
  void give_up(uint32_t packet);
  void lose(uint32_t packet);

  void reset(const network::PacketOptions& options);
  void finish_if_over(uint32_t message);
  void free_message(uint32_t message);
  void tell_sent(uint32_t message);
  void tell_delivered(uint32_t message);
  void take_out_of_line(uint32_t message);
  void check_link(int32_t link) const;

  EventQueue* queue_;
  network::NetworkClient& client_;
  network::LinkTable table_;  // until the first route
  Events events_;
  network::PacketOptions options_;
  Links links_;
  Credits credits_;
  WaitLines lines_;
  Claims packet_claims_, message_claims_;  // of what goes by load
  PathPool pool_;
  std::vector<int64_t> reads_;  // of each link's buffer: when those that are going on end, crossbar_speedup of them
  std::vector<RouteState> routes_;
  std::vector<uint64_t> names_;  // of routes
  std::vector<Message> messages_;
  std::vector<Packet> packets_;
  std::vector<uint32_t> free_messages_, free_packets_;
  struct LegCache {
    std::shared_ptr<const routing::Waypoints> legs;
    std::unordered_map<uint64_t, uint32_t> roots[2];
  };
  std::vector<LegCache> legs_;
  std::vector<routing::Stray> lost_;
  int64_t num_active_ = 0;   // messages that are not sent yet
  int64_t num_packets_ = 0;  // in the network
  bool is_rescue_due_ = false;
};

}  // namespace rostam::packet
