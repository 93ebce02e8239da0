// Ledger: what was sent and received, by iteration and category, and what crossed links; checks that it is conserved.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "folding/weighted_system.h"
#include "network/network.h"
#include "runtime/jobs.h"
#include "workload/session_result.h"

namespace rostam::runtime {

class Ledger {
 public:
  Ledger(const folding::WeightedSystem& system, const Jobs& jobs);

  // Messages of a simulated device, which stand for those of all that it stands for. Units: bytes of all planes.
  // Throws: RangeError if a sum passes 2^63 - 1.
  void count_sent(int32_t source, int32_t iteration, int32_t category, int64_t bytes, int64_t num_messages = 1);
  void count_received(int32_t source, int32_t iteration, int32_t category, int64_t bytes, int64_t num_messages = 1);

  // What switches make of a transfer: bytes of copies, or less than 0 of what they add up.
  void count_made(int32_t source, int32_t iteration, int32_t category, int64_t bytes);

  // A message of a job that is cut: `sent` bytes more have left its source, and `lost` of all its bytes never arrive.
  void count_lost(int32_t source, int32_t iteration, int32_t category, int64_t sent, int64_t lost);

  // A job goes on with `iteration`: what was counted for that one and later ones is taken out, and returned.
  // Throws: InternalError unless sent + made = received + lost.
  workload::Restart restart(int32_t job, int32_t iteration);

  // A rank is through a collective that it joined `duration` ago.
  void count_collective(int32_t device, int32_t iteration, const workload::Task& task, SimTime duration,
                        int64_t chunks_sent);

  // The first job has ended an iteration; `stats` has all that crossed links up to now.
  void end_iteration(network::NetworkStats stats);

  // Bytes sent, and made by switches, = bytes received (and lost) in every finished iteration, and what a collective
  // sent is its closed form. Throws: InternalError.
  void check() const;

  // Traffic of every job's last iteration and collectives of all; link loads, the mean of the first job's averaged
  // iterations, and in `total` of the whole run.
  void fill(const network::NetworkStats& total, workload::SessionResult& result) const;

 private:
  struct Traffic {
    int64_t sent_bytes = 0, made_bytes = 0, received_bytes = 0, lost_bytes = 0, num_messages = 0;
    workload::CollectiveTimes collectives;
  };
  struct Participants {
    int64_t chunks_sent = 0, num_ranks = 0;
  };
  Traffic& traffic(int32_t device, int32_t iteration, int32_t category);
  void check_collectives() const;
  void fill_links(workload::SessionResult& result) const;

  const folding::WeightedSystem& system_;
  const Jobs& jobs_;
  size_t num_categories_;
  std::vector<size_t> first_place_;            // per simulated device: of its job in a row of traffic_
  std::vector<std::vector<Traffic>> traffic_;  // [iteration][job * categories + category]
  std::vector<std::vector<std::vector<Participants>>> completed_;  // [iteration][job][schedule], as far as any
  // At the first job's iteration ends: the first, and as many of the last as an average may begin with.
  network::NetworkStats links_first_;
  std::deque<network::NetworkStats> links_last_;
};

}  // namespace rostam::runtime
