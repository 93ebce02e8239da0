#include "runtime/exchange_runner.h"

#include <algorithm>
#include <utility>

#include "sim/checked.h"

namespace rostam::runtime {

namespace {

ExchangeTable table_of(const RunnerParts& parts, bool takes_any) {
  if (!takes_any) return ExchangeTable();
  return ExchangeTable(parts.system, [&parts](int32_t d, int32_t slot, int32_t peer) {
    return parts.messenger.routes().make_route(d, slot, peer);
  });
}

}  // namespace

ExchangeRunner::ExchangeRunner(const RunnerParts& parts, StepwiseRunner& stepwise, const routing::RouteTable& routes,
                               bool takes_any)
    : parts_(parts),
      stepwise_(stepwise),
      table_(table_of(parts, takes_any)),
      relays_(parts.system, table_.exchanges(), routes, parts.queue, *this),
      ends_(*this, &ExchangeRunner::end) {}

void ExchangeRunner::join(const TaskRef& task, int32_t slot, uint32_t occurrence) {
  const ExchangeTable::Rank& rank = table_.rank_of(task.device, slot);
  const ExchangeRef ref = {rank.exchange, rank.rank, occurrence};
  Participation& part = parts_.participations.at(task.device, slot, occurrence);
  part.is_quiet = relays_.is_relay(ref);
  const ExchangeTerms terms = {part.chunk_bytes, part.body->protocol, part.iteration, part.category};
  const bool has_relays = relays_.join(ref, terms, part.origin);
  if (has_relays && part.is_quiet) return;
  part.is_quiet = false;
  stepwise_.advance(task.device, slot, occurrence);
}

void ExchangeRunner::on_delivered(Message& message) {
  const ExchangeTable::Rank& rank = table_.rank_of(message.target, message.slot);
  const ExchangeRef ref = {rank.exchange, rank.rank, message.occurrence};
  if (relays_.is_relay(ref) && relays_.takes(ref)) {
    relays_.arrive(ref, table_.rank_of(message.source, message.slot).rank, message.origin);
  } else {
    stepwise_.on_delivered(message);
  }
}

void ExchangeRunner::on_relayed(const ExchangeRef& sender, int32_t send, int32_t step, SimTime arrival,
                                const CriticalPath::Ref& origin) {
  const Exchange& of = exchange(sender);
  const ExchangeTerms& terms = relays_.terms(sender);
  const ExchangeSend& sent = of.sends[sender.rank][send];
  const int32_t index = parts_.messenger.make(of.devices[sender.rank], of.slot, of.devices[sent.peer]);
  parts_.messenger.load(index, checked_multiply(terms.chunk_bytes, sent.num_chunks), terms.protocol);
  Message& message = parts_.messenger[index];
  message.step = step;
  message.occurrence = sender.occurrence;
  message.category = terms.category;
  message.iteration = terms.iteration;
  message.origin = origin;
  parts_.messenger.deliver_at(index, arrival);
}

void ExchangeRunner::on_relay_end(const ExchangeRef& relay, SimTime end, const CriticalPath::Ref& origin) {
  const Exchange& of = exchange(relay);
  const int32_t d = of.devices[relay.rank];
  Participation& part = parts_.participations.at(d, of.slot, relay.occurrence);
  part.quiet_end = std::max(end, part.joined + parts_.options.min_collective_time);
  part.quiet_origin = origin;
  parts_.queue.schedule(part.quiet_end, Priority::kNormal, &ends_, pack(d, of.slot));
}

void ExchangeRunner::end(uint64_t device_and_slot) {
  const int32_t d = high(device_and_slot), slot = low(device_and_slot);
  Participation& part = *parts_.participations.front(d, slot);
  const ExchangeTable::Rank& rank = table_.rank_of(d, slot);
  const Exchange& of = table_.exchanges()[rank.exchange];
  for (const ExchangeSend& send : of.sends[rank.rank]) {
    const int64_t bytes = checked_multiply(part.chunk_bytes, send.num_chunks);
    parts_.ledger.count_sent(d, part.iteration, part.category, bytes, of.num_steps);
    if (of.is_relay[send.peer] != 0) {  // else as they are delivered
      parts_.ledger.count_received(d, part.iteration, part.category, bytes, of.num_steps);
    }
    part.chunks_sent += send.num_chunks * of.num_steps;
  }
  part.origin = std::move(part.quiet_origin);
  stepwise_.complete(d, slot);
}

void ExchangeRunner::add_loads(network::NetworkStats& stats) const {
  for (size_t e = 0; e < table_.exchanges().size(); ++e) {
    const Exchange& of = table_.exchanges()[e];
    const auto loads = relays_.loads(static_cast<int32_t>(e));
    for (size_t r = 0; r < loads.size(); ++r) {
      for (size_t k = 0; k < loads[r].size(); ++k) {
        for (const routing::LinkShare& hop : of.sends[r][k].route.links) {
          stats.link_bytes[hop.link] += loads[r][k].bytes * hop.share;
          stats.link_busy_s[hop.link] += static_cast<double>(loads[r][k].busy_ps) * 1e-12;
        }
      }
    }
  }
}

void ExchangeRunner::count_carried() {
  for (size_t e = 0; e < table_.exchanges().size(); ++e) {
    const Exchange& of = table_.exchanges()[e];
    const auto loads = relays_.loads(static_cast<int32_t>(e));
    for (size_t r = 0; r < loads.size(); ++r) {
      for (size_t k = 0; k < loads[r].size(); ++k) {
        parts_.messenger.carrier().wire().count(of.devices[r], of.devices[of.sends[r][k].peer], loads[r][k].bytes);
      }
    }
  }
}

}  // namespace rostam::runtime
