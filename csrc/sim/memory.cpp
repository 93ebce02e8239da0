#include "sim/memory.h"

#include <algorithm>
#include <fstream>
#include <iomanip>
#include <limits>

#include "sim/errors.h"

namespace rostam {

namespace {

constexpr double kUnchecked = 256e6;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

// The number behind a word of a file, or the file's first one; infinite where there is none ("max", "unlimited").
double number_in(const std::string& file, const std::string& key) {
  std::ifstream stream(file);
  for (std::string word; stream >> word;) {
    if (!key.empty() && word != key) continue;
    double number = 0;
    if (key.empty()) stream.seekg(0);
    return stream >> number ? number : kInfinite;
  }
  return kInfinite;
}

double left_of(double limit, double used) { return limit < kInfinite ? std::max(0.0, limit - used) : kInfinite; }

}  // namespace

double available_memory_bytes() {
  const std::string group = "/sys/fs/cgroup/";
  return std::min({
      number_in("/proc/meminfo", "MemAvailable:") * 1024,
      left_of(number_in(group + "memory.max", ""), number_in(group + "memory.current", "")),
      left_of(number_in(group + "memory/memory.limit_in_bytes", ""),
              number_in(group + "memory/memory.usage_in_bytes", "")),
      left_of(number_in("/proc/self/limits", "space"), number_in("/proc/self/status", "VmSize:") * 1024),
  });
}

void require_memory(double bytes, const std::string& what, const std::string& advice) {
  if (bytes <= kUnchecked) return;
  const double available = available_memory_bytes();
  if (bytes <= available) return;
  ROSTAM_THROW(ConfigError, std::fixed << std::setprecision(1) << what << " need about " << bytes / 1e9 << " GB, but "
                                       << available / 1e9 << " GB are available; " << advice);
}

}  // namespace rostam
