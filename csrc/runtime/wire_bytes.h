// WireBytes: what crossed the links of the simulated plane, by the ends that sent and received it (MODEL K29). Ends are
// a session's simulated devices, or accelerators.
// Example: wire.count(0, 3, 4096); wire.sent()[0] is 4096 more.
#pragma once

#include <cstdint>
#include <vector>

#include "workload/session_result.h"

namespace rostam::runtime {

class WireBytes {
 public:
  // weights: how many of its kind each end stands for.
  explicit WireBytes(std::vector<int64_t> weights);

  // Bytes that stand for those of many senders are spread evenly over the receivers that the target stands for.
  void count(int32_t source, int32_t target, double bytes);

  // Of one end of a transfer with several: what an end that stands for those of `source`'s kind sends and receives.
  void count_end(int32_t source, int32_t end, double sent, double received);

  // A device is no longer on the accelerator that it is on, but on another one. REQUIRES: ends of weight 1.
  void leave(int32_t device, int32_t accelerator);

  const std::vector<double>& sent() const { return sent_; }
  const std::vector<double>& received() const { return received_; }
  void fill(workload::SessionResult& result) const;

 private:
  std::vector<int64_t> weights_;
  std::vector<double> sent_, received_;
  std::vector<workload::SessionResult::Elsewhere> elsewhere_;
};

}  // namespace rostam::runtime
