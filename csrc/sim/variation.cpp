#include "sim/variation.h"

#include <cmath>

#include "sim/errors.h"

namespace rostam {

namespace {

constexpr double kPi = 3.14159265358979323846;

// Uniform in (0, 1): the 53 upper bits, in the middle of their interval.
double uniform(uint64_t key) { return (static_cast<double>(mix(key) >> 11) + 0.5) * 0x1.0p-53; }

// Of mean 0 and standard deviation 1 (Box and Muller 1958).
double normal(uint64_t key) {
  return std::sqrt(-2 * std::log(uniform(key))) * std::cos(2 * kPi * uniform(mix(key + 1)));
}

// exp(N(m, s^2)) has mean exp(m + s^2/2) and squared relative deviation exp(s^2) - 1.
double lognormal_factor(double deviation, uint64_t key) {
  const double variance = std::log1p(deviation * deviation);
  return std::exp(std::sqrt(variance) * normal(key) - variance / 2);
}

// A uniform of width w has standard deviation w / sqrt(12).
double uniform_factor(double deviation, uint64_t key) { return 1 + deviation * std::sqrt(12.0) * (uniform(key) - 0.5); }

struct Named {
  const char* name;
  Distribution distribution;
};
constexpr Named kDistributions[] = {{"lognormal", lognormal_factor}, {"uniform", uniform_factor}};

}  // namespace

uint64_t stream_key(uint64_t seed, std::string_view name) {
  uint64_t key = mix(seed);
  for (const char letter : name) key = mix(key + static_cast<unsigned char>(letter));
  return key;
}

Distribution find_distribution(const std::string& name) {
  std::string known;
  for (const Named& one : kDistributions) {
    if (name == one.name) return one.distribution;
    known += (known.empty() ? "" : ", ") + std::string(one.name);
  }
  ROSTAM_THROW(ConfigError, "unknown distribution '" << name << "'; there are: " << known);
}

std::vector<std::string> distribution_names() {
  std::vector<std::string> names;
  for (const Named& one : kDistributions) names.emplace_back(one.name);
  return names;
}

}  // namespace rostam
