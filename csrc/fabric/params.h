// Params: the plain arguments of one fabric by name, as its Python face hands them down (SI units).
// Example: params.integer("num_accelerators"); params.time("link_latency_s").
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/sim_time.h"

namespace rostam::fabric {

class Params {
 public:
  void set(const std::string& key, std::vector<double> values) { values_[key] = std::move(values); }

  // One value each. Throws: ConfigError if the key is missing or holds another number of values.
  int32_t integer(const std::string& key) const { return static_cast<int32_t>(single(key)); }
  double rate(const std::string& key) const { return single(key); }
  SimTime time(const std::string& key) const { return SimTime::from_seconds(single(key)); }

  // All values. Throws: ConfigError if the key is missing.
  const std::vector<double>& numbers(const std::string& key) const {
    const auto found = values_.find(key);
    if (found == values_.end()) ROSTAM_THROW(ConfigError, "fabric." << key << " is missing");
    return found->second;
  }
  std::vector<int32_t> integers(const std::string& key) const {
    const std::vector<double>& values = numbers(key);
    return std::vector<int32_t>(values.begin(), values.end());
  }

 private:
  double single(const std::string& key) const {
    const std::vector<double>& values = numbers(key);
    if (values.size() != 1) {
      ROSTAM_THROW(ConfigError, "fabric." << key << " has " << values.size() << " values, not one");
    }
    return values[0];
  }
  std::map<std::string, std::vector<double>> values_;
};

}  // namespace rostam::fabric
