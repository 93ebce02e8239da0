// Variation: seeded factors about 1 for durations and rates, drawn from named distributions in named streams.
// Example: Variation spread(find_distribution("lognormal"), 0.05, stream_key(seed, "devices"));
//          spread.factor(accelerator);   // equal for equal seeds, streams and keys, in whatever order they are asked
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/random.h"

namespace rostam {

// The stream `name` of a seed: draws of one say nothing of draws of another.
uint64_t stream_key(uint64_t seed, std::string_view name);

// Maps a standard deviation and the key of a draw to a factor of mean 1.
using Distribution = double (*)(double deviation, uint64_t key);

// Throws: ConfigError for an unknown name, listing those there are.
Distribution find_distribution(const std::string& name);
std::vector<std::string> distribution_names();

class Variation {
 public:
  Variation() = default;
  Variation(Distribution distribution, double deviation, uint64_t stream)
      : distribution_(distribution), deviation_(deviation), stream_(stream) {}

  double factor(uint64_t key) const { return scaled_factor(key, 1); }
  // With a standard deviation of `share` times its own.
  double scaled_factor(uint64_t key, double share) const {
    return deviation_ == 0 || share == 0 ? 1 : distribution_(deviation_ * share, mix(stream_ + mix(key)));
  }
  bool is_none() const { return deviation_ == 0; }

 private:
  Distribution distribution_ = nullptr;
  double deviation_ = 0;  // relative standard deviation
  uint64_t stream_ = 0;
};

}  // namespace rostam
