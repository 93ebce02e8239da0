// ExchangeRelays: collectives of an exchange (exchange_table.h). A rank whose messages share links with none is a
// relay: when it starts its steps follows from what comes to it,
//   S[r][k+1] = max(S[r][k] + the longest of its messages, S[q][k] + tx[q->r] + latency[q->r] of all its peers q),
// which is what the flow tier gives message by message, to the picosecond. So a message out of the network moves as
// many relays as wait for nothing else a step further, with no event for any of them.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "runtime/critical_path.h"
#include "runtime/exchange_table.h"
#include "sim/event_queue.h"

namespace rostam::runtime {

// A rank's part in a collective of an exchange.
struct ExchangeRef {
  int32_t exchange = 0;
  int32_t rank = 0;
  uint32_t occurrence = 0;
};

// What the ranks of a collective have in common.
struct ExchangeTerms {
  int64_t chunk_bytes = 0;
  int32_t protocol = -1;
  int32_t iteration = 0;
  int32_t category = 0;
};

// What relays bring about, told before it happens: it can not be changed any more.
class ExchangeClient {
 public:
  virtual ~ExchangeClient() = default;
  // The `send`-th message of a step of this relay, decided by a rank's join, comes to its peer, which is none.
  virtual void on_relayed(const ExchangeRef& sender, int32_t send, int32_t step, SimTime arrival,
                          const CriticalPath::Ref& origin) = 0;
  // The relay is through its collective.
  virtual void on_relay_end(const ExchangeRef& relay, SimTime end, const CriticalPath::Ref& origin) = 0;
};

class ExchangeRelays {
 public:
  // What a message of a relay has carried. Units: bytes on the wire.
  struct Load {
    double bytes = 0;
    int64_t busy_ps = 0;
  };

  // num_planes: that a message's bytes are spread over evenly. All others must outlive it.
  ExchangeRelays(const WeightedSystem& system, const std::vector<Exchange>& exchanges,
                 const routing::RouteTable& routes, const EventQueue& queue, ExchangeClient& client);

  bool is_relay(const ExchangeRef& rank) const { return exchanges_[rank.exchange].of->is_relay[rank.rank] != 0; }

  // A rank joins, relay or not. False if the collective goes message by message on every rank, as of its first join.
  // Throws: ConfigError if ranks disagree on what they exchange.
  bool join(const ExchangeRef& rank, const ExchangeTerms& terms, const CriticalPath::Ref& origin);

  // Whether a message to a relay is one for arrive(). REQUIRES: its sender has joined.
  bool takes(const ExchangeRef& relay) const;
  // A message from a rank that is none comes to a relay now, out of the network.
  void arrive(const ExchangeRef& relay, int32_t sender, const CriticalPath::Ref& origin);

  // Of a collective with relays.
  const ExchangeTerms& terms(const ExchangeRef& rank) const { return of(rank).terms; }

  // What relays have carried up to now, by rank and message; nothing for other ranks.
  std::vector<std::vector<Load>> loads(int32_t exchange) const;

 private:
  struct Arrival {
    SimTime time;
    int32_t decided_by = 0;  // the rank whose join did
  };
  struct Rank {
    int32_t step = -1;  // the last one known; -1 until it has joined
    SimTime start;      // of that step
    int32_t decided_by = 0;
    std::vector<SimTime> send_times, latencies;  // of its messages
    SimTime longest;                             // of the send times
    std::vector<std::deque<Arrival>> arrivals;   // by place: of its step and later ones
    CriticalPath::Ref origin;                    // of its join
    int64_t num_sent = 0;                        // steps whose messages have all left it
    std::deque<SimTime> starts;                  // of those that had not when the last one became known
  };
  struct Collective {
    ExchangeTerms terms;
    bool has_relays = true;
    int32_t num_joined = 0;
    int32_t num_left = 0;  // relays that are not known to be through, and others that have not joined
    SimTime last_end;      // of relays that are
    std::vector<Rank> ranks;
    std::unordered_map<int32_t, int32_t> rank_of;  // by the node of its join
  };
  struct ExchangeState {
    const Exchange* of = nullptr;
    uint32_t first_occurrence = 0;
    std::deque<Collective> collectives;    // from first_occurrence on
    std::vector<std::vector<Load>> loads;  // of those that are over
  };

  const Collective& of(const ExchangeRef& rank) const {
    const ExchangeState& state = exchanges_[rank.exchange];
    return state.collectives[rank.occurrence - state.first_occurrence];
  }
  Collective& make(const ExchangeRef& rank);
  void begin(const Exchange& exchange, const ExchangeTerms& terms, Collective& one) const;
  bool fits_clock(const Exchange& exchange, const Collective& one) const;
  int64_t wire_bytes(const ExchangeSend& send, const ExchangeTerms& terms) const;
  void send(const ExchangeRef& relay, Collective& one);
  void go_on(const ExchangeRef& any, Collective& one);
  bool advance(const ExchangeRef& relay, Collective& one);
  void retire(ExchangeState& state) const;
  void add_load(const ExchangeState& state, const Collective& one, std::vector<std::vector<Load>>& loads) const;

  const WeightedSystem& system_;
  const routing::RouteTable& routes_;
  const EventQueue& queue_;
  ExchangeClient& client_;
  std::vector<ExchangeState> exchanges_;
  std::vector<int32_t> waiting_;  // ranks that may go on, while go_on() runs
};

}  // namespace rostam::runtime
