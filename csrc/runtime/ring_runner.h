// RingRunner: one-way rings on links of their own go without messages (quiet_rings.h) until a message of others comes
// onto those links, rings that share some of their links with themselves go without most (ring_relays.h), and so do
// several rings through the same ranks at once (exchange_runner.h); groups that one device stands for go without
// messages as quiet rings do (lone_collectives.h); all else goes stepwise.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "runtime/exchange_runner.h"
#include "runtime/lone_collectives.h"
#include "runtime/quiet_rings.h"
#include "runtime/ring_relays.h"
#include "runtime/stepwise_runner.h"

namespace rostam::runtime {

class RingRunner : public CollectiveRunner, public RouteWatcher, public RelayClient {
 public:
  // Watches the messenger of `parts`. takes_relays: nothing will change routes or cut jobs, so that what relays have
  // told of the time to come stands.
  RingRunner(const RunnerParts& parts, const routing::RouteTable& routes, const Footprint& footprint,
             bool takes_relays);

  void join(const TaskRef& task, const CriticalPath::Ref& cause) override;
  void on_sent(const Message& message) override { stepwise_.on_sent(message); }
  void on_delivered(Message& message) override;
  void add_loads(SimTime now, network::NetworkStats& stats) const override;
  void count_carried(SimTime now) override;

  void on_relayed(const RelayRef& sender, int32_t step, SimTime arrival, const CriticalPath::Ref& origin) override;
  void on_relay_end(const RelayRef& relay, SimTime end, const CriticalPath::Ref& origin) override;

  void on_new_route(network::RouteId route, const routing::Route& links, int32_t device, int32_t slot) override;
  void before_send(network::RouteId route) override;
  void after_sent(network::RouteId route) override;

 private:
  void join_ring(const TaskRef& task, int32_t slot, uint32_t occurrence, const QuietRings::Rank& rank);
  void join_relays(const TaskRef& task, int32_t slot, const RelayRef& rank);
  RingExchange exchange_of(const Participation& part);
  int64_t message_chunks(int32_t schedule);
  void end_quietly(uint64_t device_and_slot);
  void fetch_end(uint64_t device_and_slot) const;
  void disturb(int32_t ring);
  void go_on_stepwise(int32_t ring, uint32_t occurrence);
  void restore(int32_t ring, uint32_t occurrence, const QuietRings::Moment& moment, size_t position);
  int32_t make_message(const RelayRef& sender, const RingExchange& exchange, int32_t step);

  RunnerParts parts_;
  StepwiseRunner stepwise_;
  QuietRings rings_;
  RingRelays relays_;
  ExchangeRunner exchanges_;
  LoneCollectives lone_;
  MemberEvent<RingRunner> ends_;
  // Per route: rings of others whose links it uses. They stay where they are: what is disturbed by a message of one
  // route may go on over routes that are new.
  std::deque<FewList<int32_t, 4>> crossings_;
  std::vector<int64_t> message_chunks_;  // per schedule; 0 until it is asked for
};

}  // namespace rostam::runtime
