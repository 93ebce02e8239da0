// MailboxKey: where a point-to-point message arrives. A receive takes the message of its channel, iteration and
// micro-batch that comes to its device; no program sends or receives one of them twice (workload/freeze.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "sim/random.h"

namespace rostam::runtime {

struct MailboxKey {
  int32_t device = 0;  // simulated, the receiver
  int32_t channel = 0;
  int32_t iteration = 0;
  int32_t microbatch = 0;

  bool operator==(const MailboxKey& other) const {
    return device == other.device && channel == other.channel && iteration == other.iteration &&
           microbatch == other.microbatch;
  }
};

struct MailboxHash {
  size_t operator()(const MailboxKey& key) const {
    const auto join = [](int32_t high, int32_t low) { return uint64_t(uint32_t(high)) << 32 | uint32_t(low); };
    return mix(mix(join(key.device, key.channel)) + join(key.iteration, key.microbatch));
  }
};

}  // namespace rostam::runtime
