#include "collectives/steps.h"

#include <unordered_map>

#include "sim/interrupt.h"
#include "sim/random.h"

namespace rostam::collectives {

namespace {

StepPattern pattern_of(const Schedule& schedule, int32_t step) {
  StepPattern pattern;
  std::vector<Transfer> transfers;
  InterruptPoll poll;
  for (int32_t rank = 0; rank < schedule.shape().num_ranks; ++rank) {
    poll();
    transfers.clear();
    schedule.messages(rank, step, transfers);
    for (const Transfer& transfer : transfers) {
      pattern.src.push_back(rank);
      pattern.dst.push_back(transfer.peer);
      pattern.num_chunks.push_back(transfer.num_chunks);
    }
  }
  return pattern;
}

bool is_same(const StepPattern& a, const StepPattern& b) {
  return a.src == b.src && a.dst == b.dst && a.num_chunks == b.num_chunks;
}

uint64_t hash_of(const StepPattern& pattern) {
  uint64_t hash = 0;
  for (size_t k = 0; k < pattern.src.size(); ++k) {
    hash = mix(hash + (uint64_t(uint32_t(pattern.src[k])) << 32 | uint32_t(pattern.dst[k])));
    hash = mix(hash + uint64_t(uint32_t(pattern.num_chunks[k])));
  }
  return hash;
}

}  // namespace

StepPattern step_pattern(const Schedule& schedule, int32_t step) {
  StepPattern pattern = pattern_of(schedule, step);
  pattern.count = 1;
  return pattern;
}

std::vector<StepPattern> distinct_steps(const Schedule& schedule) {
  const Shape& shape = schedule.shape();
  std::vector<StepPattern> patterns;
  std::unordered_multimap<uint64_t, size_t> known;
  for (int32_t step = 0, next = 0; step < shape.num_steps; step = next) {
    next = schedule.next_unlike(step);
    StepPattern pattern = pattern_of(schedule, step);
    if (shape.has_fixed_peers) {
      pattern.count = shape.num_steps;
      patterns.push_back(std::move(pattern));
      break;
    }
    const uint64_t hash = hash_of(pattern);
    auto [entry, end] = known.equal_range(hash);
    while (entry != end && !is_same(patterns[entry->second], pattern)) ++entry;
    if (entry == end) {
      entry = known.emplace(hash, patterns.size());
      patterns.push_back(std::move(pattern));
    }
    patterns[entry->second].count += next - step;
  }
  return patterns;
}

}  // namespace rostam::collectives
