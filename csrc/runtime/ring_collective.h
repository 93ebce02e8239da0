// RingCollective: one one-way ring collective on quiet links, in time.
//
// No flow shares, so step k + 1 of rank r starts at
//   S[r][k+1] = max(S[r][k] + tx[r], S[r-1][k] + tx[r-1] + latency[r-1]),  S[r][0] = when r joined,
// which is what the flow tier gives message by message, to the picosecond (tests/runtime/test_quiet_rings.py).
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/critical_path.h"
#include "runtime/ring_table.h"

namespace rostam::runtime {

// What all ranks of a collective have in common.
struct RingExchange {
  int32_t num_steps = 0;
  int64_t bytes = 0;       // of a message
  int64_t wire_bytes = 0;  // of it that the simulated plane carries, the protocol's own included
  int64_t num_chunks = 0;  // of a message
  int32_t iteration = 0;
  int32_t category = 0;
  int32_t protocol = -1;
};

// What a rank has carried. Units: bytes on the wire.
struct RingLoad {
  double bytes = 0;
  int64_t busy_ps = 0;
};

// Adds to bytes and busy seconds of the links what the ring's ranks have carried.
void add_ring_loads(const Ring& ring, const std::vector<RingLoad>& loads, std::vector<double>& bytes,
                    std::vector<double>& busy_s);

struct RingRank {
  SimTime join = SimTime::never();  // until then
  CriticalPath::Ref origin;         // of the join
  SimTime send_time, latency;       // of a message of it
};

struct RingCollective {
  RingCollective() = default;
  explicit RingCollective(size_t num_ranks) : ranks(num_ranks) {}
  // As a new one, in the memory that it has.
  void reset(size_t num_ranks);

  RingExchange exchange;
  bool is_quiet = true;
  int32_t num_joined = 0;
  std::vector<RingRank> ranks;
  SimTime end = SimTime::never();  // the last rank is through

  // A rank joins the ring's `occurrence`-th collective, this one; the first one says what all exchange and how long a
  // message of each takes. Throws: ConfigError if ranks disagree on what they exchange.
  void join(const WeightedSystem& system, const Ring& ring, int32_t position, uint32_t occurrence,
            const RingExchange& exchange);

  // Whether the collective is through before the end of simulated time, if all joined now.
  bool fits_clock(SimTime now) const;

  // Adds what it has carried up to `now`, per rank; bytes of messages that are still being sent on demand.
  void add_load(const Ring& ring, SimTime now, bool counts_unfinished, std::vector<RingLoad>& loads) const;

 private:
  void begin(const WeightedSystem& system, const Ring& ring, const RingExchange& of_all);
};

// The steps one after the other: when each rank starts the present one, as far as that is reached by `now`.
class RingSteps {
 public:
  struct Start {  // never() if it is not known or not reached
    SimTime time;
    int32_t decided_by = 0;  // the rank whose join did
  };

  // At the first step. `collective` must outlive it.
  RingSteps(const RingCollective& collective, SimTime now);

  const std::vector<Start>& starts() const { return starts_; }
  void advance();

 private:
  const RingCollective& collective_;
  SimTime now_;
  std::vector<Start> starts_;
};

// When each rank is through and the rank whose join decided it, as RingSteps tells after all steps.
// REQUIRES: all have joined; at least p - 1 steps. Cost: p for each distinct send time.
std::vector<RingSteps::Start> ring_ends(const RingCollective& collective);

}  // namespace rostam::runtime
