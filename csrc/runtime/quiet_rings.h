// QuietRings: one-way ring collectives computed without their messages while nothing else uses their links.
// Another flow onto a ring's links disturbs it: the session then goes on message by message from where its steps
// (ring_collective.h) stand, until that collective's end. Tensor-parallel groups inside servers are quiet nearly
// always, and send most of the messages of a large run.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "runtime/critical_path.h"
#include "runtime/ring_collective.h"
#include "runtime/ring_table.h"
#include "sim/few_list.h"

namespace rostam::runtime {

class QuietRings {
 public:
  using Rank = RingTable::Rank;
  // When a rank is through a collective that all have joined, and the join that decided it.
  struct End {
    SimTime time;
    CriticalPath::Ref origin;
  };
  // A rank at some moment, as the session would have it message by message.
  struct Progress {
    int32_t step = 0;           // it is in; the number of steps if it is through
    int32_t num_sent = 0;       // messages that have left it
    int32_t num_delivered = 0;  // of those, messages that the next rank has
    bool is_sending = false;    // the message of `step`, since `step_start`
    SimTime step_start;
    CriticalPath::Ref origin;
  };
  struct InFlight {
    int32_t position = 0;  // of the sender
    int32_t step = 0;
    SimTime arrival;
    CriticalPath::Ref origin;
  };
  struct Moment {
    std::vector<Progress> ranks;
    std::vector<InFlight> messages;
  };

  // takes_sharing: the table holds rings that share links too (ring_relays.h); they are none of its own.
  QuietRings(const WeightedSystem& system, const Footprint& footprint, bool takes_sharing,
             const RingTable::RouteFunction& route);

  const RingTable& table() const { return table_; }
  const Ring& ring(int32_t ring) const { return rings_[ring]; }

  // kSimulated: the collective goes message by message, decided when its first rank joins or by interrupt().
  enum class Joined { kSimulated, kWaiting, kLast };
  // A rank joins its `occurrence`-th collective. Throws: ConfigError if ranks disagree on what they exchange.
  Joined join(const Rank& rank, uint32_t occurrence, const RingExchange& exchange, SimTime now,
              const CriticalPath::Ref& origin);

  // For every rank. REQUIRES: all have joined. Valid until the next call.
  const std::vector<End>& ends(int32_t ring, uint32_t occurrence);

  // A flow of another owner starts or ends on the ring's links.
  void enter(int32_t ring) { ++rings_[ring].num_visitors; }
  void leave(int32_t ring) { --rings_[ring].num_visitors; }

  // Quiet collectives of the ring that are under way. interrupt() tells where one stands, counts the bytes of messages
  // that have been sent, and leaves the rest to the session.
  std::vector<uint32_t> under_way(int32_t ring, SimTime now) const;
  Moment interrupt(int32_t ring, uint32_t occurrence, SimTime now);
  const RingExchange& exchange(int32_t ring, uint32_t occurrence) const {
    return rings_[ring].collectives[occurrence - rings_[ring].first_occurrence]->exchange;
  }

  // What quiet collectives have carried up to `now`, one entry for each rank of a ring. Units: bytes on the wire.
  struct Carried {
    int32_t source = 0;  // simulated device
    int32_t peer = 0;    // device
    double bytes = 0;
  };
  std::vector<Carried> carried(SimTime now) const;

  // Adds what quiet collectives have carried up to `now` to bytes and busy seconds of the links.
  void add_loads(SimTime now, std::vector<double>& bytes, std::vector<double>& busy_s) const;

 private:
  struct RingState : Ring {
    explicit RingState(const Ring& ring) : Ring(ring) {}
    int32_t num_visitors = 0;
    uint32_t first_occurrence = 0;
    FewList<RingCollective*, 2> collectives;  // from first_occurrence on
    std::vector<RingLoad> loads;              // per rank, of collectives that are over or interrupted
  };

  static std::vector<RingLoad> loads_at(const RingState& ring, SimTime now);
  RingCollective& collective(RingState& ring, uint32_t occurrence);
  void retire(RingState& ring, SimTime now);

  const WeightedSystem& system_;
  RingTable table_;
  std::vector<RingState> rings_;
  // Collectives of all rings: what ended last, and is still in the processor's caches, is used again first.
  std::deque<RingCollective> all_;
  std::vector<RingCollective*> free_;
  std::vector<End> ends_;
};

}  // namespace rostam::runtime
