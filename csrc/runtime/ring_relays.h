// RingRelays: one-way rings of which some messages share links with each other, as on a torus those that go from one
// row to the next. Those go over the network. A rank whose messages share links with none is a relay between them: when
// it starts its steps follows from what comes to the relays before it,
//   S[r][k+1] = max(S[r][k] + tx[r], S[r-1][k] + tx[r-1] + latency[r-1])   (ring_collective.h),
// so that one message out of the network moves a whole run of relays a step further, with no event for any of them.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "runtime/ring_collective.h"
#include "sim/event_queue.h"

namespace rostam::runtime {

// A rank's part in a collective of a ring.
struct RelayRef {
  int32_t ring = 0;
  int32_t position = 0;
  uint32_t occurrence = 0;
};

// What relays bring about, told before it happens: it can not be changed any more.
class RelayClient {
 public:
  virtual ~RelayClient() = default;
  // The message of a step of this relay, decided by a rank's join, comes to the next rank, which is none.
  virtual void on_relayed(const RelayRef& sender, int32_t step, SimTime arrival, const CriticalPath::Ref& origin) = 0;
  // The relay is through its collective.
  virtual void on_relay_end(const RelayRef& relay, SimTime end, const CriticalPath::Ref& origin) = 0;
};

class RingRelays {
 public:
  // Of those rings of the table that share links. REQUIRES: nothing else ever uses the relays' links.
  RingRelays(const WeightedSystem& system, const std::vector<Ring>& rings, const EventQueue& queue,
             RelayClient& client);

  bool is_relay(int32_t ring, int32_t position) const {
    return rings_[ring].ring->shares_links() && rings_[ring].ring->is_shared[position] == 0;
  }

  // A rank joins, relay or not. False if the collective goes message by message on every rank, as of its first join.
  // Throws: ConfigError if ranks disagree on what they exchange.
  bool join(const RelayRef& rank, const RingExchange& exchange, const CriticalPath::Ref& origin);

  // Whether a message to a relay is one for arrive(). REQUIRES: its sender has joined.
  bool takes(const RelayRef& relay) const;
  // A message out of the network comes to a relay now.
  void arrive(const RelayRef& relay, const CriticalPath::Ref& origin);

  // Of a collective that has relays.
  const RingExchange& exchange(const RelayRef& rank) const { return of(rank).exchange; }
  // Whether a relay's messages come to another one.
  bool is_before_relay(int32_t ring, int32_t position) const {
    return is_relay(ring, next(*rings_[ring].ring, position));
  }

  // What relays have carried up to now, per rank of a ring; nothing for rings that share no links.
  std::vector<RingLoad> loads(int32_t ring) const;

 private:
  struct Arrival {
    SimTime time;
    int32_t decided_by = 0;  // the rank whose join did
  };
  struct Relay {
    int32_t step = -1;  // the last one known; -1 until it has joined
    SimTime start;      // of that step
    int32_t decided_by = 0;
    std::vector<Arrival> early;  // before it has joined
    int32_t num_sent = 0;        // messages that have left it
    std::deque<SimTime> starts;  // of those that had not when the last one became known
  };
  struct Collective : RingCollective {
    explicit Collective(size_t num_ranks) : RingCollective(num_ranks), relays(num_ranks) {}
    std::vector<Relay> relays;
    std::unordered_map<int32_t, int32_t> rank_of;  // by the node of its join
    int32_t num_left = 0;  // relays that are not known to be through, and others that have not joined
    SimTime last_end;      // of relays that are
  };
  struct RingState {
    const Ring* ring = nullptr;
    uint32_t first_occurrence = 0;
    std::deque<Collective> collectives;  // from first_occurrence on
    std::vector<RingLoad> loads;         // of those that are over
  };

  static int32_t next(const Ring& ring, int32_t position) {
    return position + 1 == static_cast<int32_t>(ring.devices.size()) ? 0 : position + 1;
  }
  const Collective& of(const RelayRef& rank) const {
    return rings_[rank.ring].collectives[rank.occurrence - rings_[rank.ring].first_occurrence];
  }
  Collective& make(const RelayRef& rank);
  void retire(RingState& ring) const;
  void begin(const RelayRef& relay, Collective& one);
  void pass(RelayRef rank, Collective& one, Arrival arrival);
  Arrival send(const RelayRef& relay, Collective& one) const;
  void add_load(const RingState& ring, const Collective& one, std::vector<RingLoad>& loads) const;

  const WeightedSystem& system_;
  const EventQueue& queue_;
  RelayClient& client_;
  std::vector<RingState> rings_;
};

}  // namespace rostam::runtime
