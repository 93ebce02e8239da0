#include "workload/program.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "sim/checked.h"

namespace rostam::workload {

namespace {

using Wide = __int128;

// Values ascending.
Progression ascending(Progression p) {
  if (p.stride >= 0) return p;
  return {p.first + p.stride * (p.count - 1), -p.stride, p.count};
}

int64_t last_of(const Progression& p) { return p.first + p.stride * (p.count - 1); }

bool contains(const Progression& p, int64_t value) {
  if (value < p.first || value > last_of(p)) return false;
  return p.stride == 0 || (value - p.first) % p.stride == 0;
}

// gcd(a, b) and x with a x = gcd modulo b.
int64_t extended_gcd(int64_t a, int64_t b, int64_t& x) {
  int64_t next = b, x_next = 0;
  x = 1;
  while (next != 0) {
    const int64_t quotient = a / next;
    a = std::exchange(next, a - quotient * next);
    x = std::exchange(x_next, x - quotient * x_next);
  }
  return a;
}

// Two ascending progressions with strides > 0: the least common value by the Chinese remainder theorem.
bool find_common(const Progression& a, const Progression& b, int64_t& value) {
  int64_t inverse = 0;
  const int64_t gcd = extended_gcd(a.stride, b.stride, inverse);
  const int64_t distance = b.first - a.first;
  if (distance % gcd != 0) return false;
  const int64_t modulus = b.stride / gcd;
  Wide steps = static_cast<Wide>(distance / gcd) * inverse % modulus;
  if (steps < 0) steps += modulus;
  const Wide period = static_cast<Wide>(a.stride) * modulus;
  Wide common = a.first + steps * a.stride;
  const int64_t least = std::max(a.first, b.first);
  if (common < least) common += (least - common + period - 1) / period * period;
  if (common > std::min(last_of(a), last_of(b))) return false;
  value = static_cast<int64_t>(common);
  return true;
}

}  // namespace

Program::Program(std::vector<ProgramBlock> blocks) : blocks_(std::move(blocks)) {
  const auto is_empty = [](const ProgramBlock& block) { return block.entries.empty(); };
  blocks_.erase(std::remove_if(blocks_.begin(), blocks_.end(), is_empty), blocks_.end());
  for (const ProgramBlock& block : blocks_) {
    if (block.count < 1) ROSTAM_THROW(ConfigError, "a program repeats a block " << block.count << " times; at least 1");
    first_.push_back(num_steps_);
    num_steps_ = checked_add(num_steps_, checked_multiply(block.count, static_cast<int64_t>(block.entries.size())));
    for (const ProgramEntry& entry : block.entries) {
      const int64_t last = checked_add(entry.microbatch, checked_multiply(entry.stride, block.count - 1));
      if (last < std::numeric_limits<int32_t>::min() || last > std::numeric_limits<int32_t>::max()) {
        ROSTAM_THROW(ConfigError, "a program reaches micro-batch " << last << "; micro-batches are 32-bit integers");
      }
    }
  }
}

ProgramStep Program::step(int64_t position) const {
  const auto after = std::upper_bound(first_.begin(), first_.end(), position);
  const auto index = static_cast<size_t>(after - first_.begin()) - 1;
  const ProgramBlock& block = blocks_[index];
  const int64_t offset = position - first_[index];
  const auto size = static_cast<int64_t>(block.entries.size());
  const ProgramEntry& entry = block.entries[static_cast<size_t>(offset % size)];
  return {entry.template_id, static_cast<int32_t>(entry.microbatch + entry.stride * (offset / size))};
}

std::vector<int32_t> Program::templates() const {
  std::vector<int32_t> used;
  for (const ProgramBlock& block : blocks_) {
    for (const ProgramEntry& entry : block.entries) used.push_back(entry.template_id);
  }
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  return used;
}

bool find_common_value(const std::vector<Progression>& progressions, int64_t& value) {
  std::vector<int64_t> single;
  std::vector<Progression> long_ones;
  for (const Progression& p : progressions) {
    if (p.count == 1) {
      single.push_back(p.first);
    } else if (p.stride == 0) {
      value = p.first;
      return true;
    } else {
      long_ones.push_back(ascending(p));
    }
  }
  std::sort(single.begin(), single.end());
  const auto twice = std::adjacent_find(single.begin(), single.end());
  if (twice != single.end()) {
    value = *twice;
    return true;
  }
  for (size_t i = 0; i < long_ones.size(); ++i) {
    const auto is_in = [&](int64_t one) { return contains(long_ones[i], one); };
    const auto hit = std::find_if(single.begin(), single.end(), is_in);
    if (hit != single.end()) {
      value = *hit;
      return true;
    }
    for (size_t k = 0; k < i; ++k) {
      if (find_common(long_ones[k], long_ones[i], value)) return true;
    }
  }
  return false;
}

}  // namespace rostam::workload
