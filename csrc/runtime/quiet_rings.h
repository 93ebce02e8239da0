// QuietRings: one-way ring collectives computed without their messages while nothing else uses their links.
//
// On quiet links no flow shares, so step k + 1 of rank r starts at
//   S[r][k+1] = max(S[r][k] + tx[r], S[r-1][k] + tx[r-1] + latency[r-1]),  S[r][0] = when r joined,
// which is what the flow tier gives message by message, to the picosecond (tests/runtime/test_quiet_rings.py).
// A flow of somebody else onto a ring's links disturbs it: the session then goes on message by message from where
// the recurrence stands, until that collective's end. Tensor-parallel groups inside servers are quiet nearly always,
// and send most of the messages of a large run.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "runtime/critical_path.h"
#include "runtime/ring_table.h"

namespace rostam::runtime {

class QuietRings {
 public:
  using Rank = RingTable::Rank;
  // What all ranks of a collective have in common.
  struct Exchange {
    int32_t num_steps = 0;
    int64_t bytes = 0;       // of a message
    int64_t wire_bytes = 0;  // of it that the simulated plane carries
    int64_t num_chunks = 0;  // of a message
    int32_t iteration = 0;
    int32_t category = 0;
  };
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

  QuietRings(const WeightedSystem& system, const Footprint& footprint, const RingTable::RouteFunction& route);

  const RingTable& table() const { return table_; }
  const Ring& ring(int32_t ring) const { return rings_[ring]; }

  // kSimulated: the collective goes message by message, decided when its first rank joins or by interrupt().
  enum class Joined { kSimulated, kWaiting, kLast };
  // A rank joins its `occurrence`-th collective. Throws: ConfigError if ranks disagree on what they exchange.
  Joined join(const Rank& rank, uint32_t occurrence, const Exchange& exchange, SimTime now,
              const CriticalPath::Ref& origin);

  // For every rank. REQUIRES: all have joined. Valid until the next call.
  const std::vector<End>& ends(int32_t ring, uint32_t occurrence);

  // A flow of somebody else starts or ends on the ring's links.
  void enter(int32_t ring) { ++rings_[ring].num_visitors; }
  void leave(int32_t ring) { --rings_[ring].num_visitors; }

  // Quiet collectives of the ring that are under way. interrupt() tells where one stands, counts the bytes of messages
  // that have been sent, and leaves the rest to the session.
  std::vector<uint32_t> under_way(int32_t ring, SimTime now) const;
  Moment interrupt(int32_t ring, uint32_t occurrence, SimTime now);
  const Exchange& exchange(int32_t ring, uint32_t occurrence) const {
    return rings_[ring].collectives[occurrence - rings_[ring].first_occurrence].exchange;
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
  struct Collective {
    Exchange exchange;
    bool is_quiet = true;
    int32_t num_joined = 0;
    std::vector<SimTime> joins;  // never() until then
    std::vector<CriticalPath::Ref> origins;
    std::vector<SimTime> send_times;
    SimTime end = SimTime::never();  // the last rank is through
  };
  struct Load {
    double bytes = 0;
    int64_t busy_ps = 0;
  };
  struct RingState : Ring {
    explicit RingState(const Ring& ring) : Ring(ring) {}
    int32_t num_visitors = 0;
    uint32_t first_occurrence = 0;
    std::deque<Collective> collectives;  // from first_occurrence on
    std::vector<Load> loads;             // per rank, of collectives that are over or interrupted
  };
  struct Start {  // of a rank's step; never() if it is not known or not reached
    SimTime time;
    int32_t decided_by = 0;
  };

  // Whether the collective is through before the end of simulated time, if all joined now.
  static bool fits_clock(const RingState& ring, const Collective& one, SimTime now);
  static std::vector<Load> loads_at(const RingState& ring, SimTime now);
  static Collective& collective(RingState& ring, uint32_t occurrence);
  static void retire(RingState& ring, SimTime now);
  static std::vector<Start> first_step(const Collective& one, SimTime now);
  static void next_step(const Ring& ring, const Collective& one, SimTime now, std::vector<Start>& starts);
  static void add_load(const RingState& ring, const Collective& one, SimTime now, bool counts_unfinished,
                       std::vector<Load>& loads);

  RingTable table_;
  std::vector<RingState> rings_;
  std::vector<End> ends_;
};

}  // namespace rostam::runtime
