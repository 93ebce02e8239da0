// ExchangeRunner: collectives of exchanges (exchange_table.h) with few messages: their relays go without, the other
// ranks stepwise.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/exchange_relays.h"
#include "runtime/stepwise_runner.h"

namespace rostam::runtime {

class ExchangeRunner : public ExchangeClient {
 public:
  // takes_any: nothing will change routes or cut jobs, so that what relays have told of the time to come stands; else
  // there are no exchanges. All arguments must outlive it.
  ExchangeRunner(const RunnerParts& parts, StepwiseRunner& stepwise, const routing::RouteTable& routes, bool takes_any);

  // Whether collectives of the device's slot are of an exchange.
  bool has(int32_t device, int32_t slot) const { return table_.rank_of(device, slot).exchange != ExchangeTable::kNone; }
  // A rank that has entered its collective. REQUIRES: has().
  void join(const TaskRef& task, int32_t slot, uint32_t occurrence);
  void on_delivered(Message& message);

  void add_loads(network::NetworkStats& stats) const;
  void count_carried();

  void on_relayed(const ExchangeRef& sender, int32_t send, int32_t step, SimTime arrival,
                  const CriticalPath::Ref& origin) override;
  void on_relay_end(const ExchangeRef& relay, SimTime end, const CriticalPath::Ref& origin) override;

 private:
  const Exchange& exchange(const ExchangeRef& ref) const { return table_.exchanges()[ref.exchange]; }
  void end(uint64_t device_and_slot);

  RunnerParts parts_;
  StepwiseRunner& stepwise_;
  ExchangeTable table_;
  ExchangeRelays relays_;
  MemberEvent<ExchangeRunner> ends_;
};

}  // namespace rostam::runtime
