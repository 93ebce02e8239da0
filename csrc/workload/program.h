// Program: what a device runs in one iteration, as blocks of (template, micro-batch) entries that repeat, so that its
// size does not grow with the micro-batches. In the k-th repetition of its block an entry has micro-batch
// `microbatch + k * stride`. An explicit list is one block that runs once.
//
// Example, 1F1B with m micro-batches on a stage that w others follow (w <= m):
//   {w x [(forward, 0, 1)],  (m - w) x [(forward, w, 1), (backward, 0, 1)],  w x [(backward, m - w, 1)]}.
#pragma once

#include <cstdint>
#include <vector>

namespace rostam::workload {

struct ProgramEntry {
  int32_t template_id = 0;
  int32_t microbatch = 0;
  int32_t stride = 0;  // of the micro-batch from one repetition to the next
};

struct ProgramBlock {
  std::vector<ProgramEntry> entries;
  int64_t count = 1;  // repetitions
};

// One instance of a program: what to run, for which micro-batch.
struct ProgramStep {
  int32_t template_id = 0;
  int32_t microbatch = 0;
};

class Program {
 public:
  // Throws: ConfigError for a count below 1, a micro-batch outside int32, or more steps than int64 holds.
  explicit Program(std::vector<ProgramBlock> blocks);

  const std::vector<ProgramBlock>& blocks() const { return blocks_; }
  int64_t num_steps() const { return num_steps_; }

  // REQUIRES: 0 <= position < num_steps(). Cost: O(log blocks).
  ProgramStep step(int64_t position) const;

  // The templates that it uses, each once, ascending.
  std::vector<int32_t> templates() const;

 private:
  std::vector<ProgramBlock> blocks_;  // none of them empty
  std::vector<int64_t> first_;        // position of each block's first step
  int64_t num_steps_ = 0;
};

// The values first, first + stride, ... of an entry over its block's repetitions.
struct Progression {
  int64_t first = 0;
  int64_t stride = 0;
  int64_t count = 1;
};

// A value that two entries of `progressions` (or one of them twice) have in common, if there is any.
// Cost: O(n log n) for entries that run once, each of the others is compared with all.
bool find_common_value(const std::vector<Progression>& progressions, int64_t& value);

}  // namespace rostam::workload
