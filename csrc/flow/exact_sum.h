// ExactSum: a sum of numbers >= 0 in fixed point, 128 bits wide, so that it depends on what is in it and not on the
// order in which that came and went: numbers taken out again leave no rounding behind.
// Example: RateSum sum; sum.add(1e10 / 3); sum.subtract(1e10 / 3); sum.value() == 0
#pragma once

#include <cstdint>
#include <cstring>

namespace rostam::flow {

// Numbers are held to 2^-kBits, what is below is cut off; doubles above 2^(53 - kBits) are held whole.
// REQUIRES: the sum stays below 2^(127 - kBits).
template <int kBits>
class ExactSum {
 public:
  void add(double number) { sum_ += fixed(number); }
  void subtract(double number) { sum_ -= fixed(number); }
  // The nearest double.
  double value() const {
    if (sum_ >> 63 == 0) return static_cast<double>(static_cast<int64_t>(sum_)) * kQuantum;
    if (sum_ < 0) return static_cast<double>(sum_) * kQuantum;
    // The upper 63 bits round as the whole does if the last of them says whether any lower one is set.
    const auto upper = static_cast<uint64_t>(static_cast<unsigned __int128>(sum_) >> 63);
    const int shift = 64 - __builtin_clzll(upper);
    const bool is_cut = (sum_ & ((static_cast<__int128>(1) << shift) - 1)) != 0;
    const auto top = static_cast<int64_t>(sum_ >> shift) | static_cast<int64_t>(is_cut);
    const uint64_t scale_bits = static_cast<uint64_t>(1023 + shift) << 52;
    double scale = 0;
    std::memcpy(&scale, &scale_bits, sizeof scale);
    return static_cast<double>(top) * scale * kQuantum;
  }
  bool is_zero() const { return sum_ == 0; }
  void add(const ExactSum& other) { sum_ += other.sum_; }
  void subtract(const ExactSum& other) { sum_ -= other.sum_; }

 private:
  static constexpr double quantum(int bits) { return bits == 0 ? 1.0 : quantum(bits - 1) / 2; }
  static constexpr double kQuantum = quantum(kBits);
  static constexpr int kMaxShift = 126 - 53 - 17;  // 2^17 of the largest number fit into the sum

  static __int128 fixed(double number) {
    uint64_t bits = 0;
    std::memcpy(&bits, &number, sizeof bits);
    const auto exponent = static_cast<int>(bits >> 52);
    const uint64_t mantissa = (bits & 0xFFFFFFFFFFFFFu) | (uint64_t{1} << 52);
    const int shift = exponent - 1075 + kBits;
    if (shift >= 0) return static_cast<__int128>(mantissa) << (shift < kMaxShift ? shift : kMaxShift);
    return shift > -64 ? static_cast<__int128>(mantissa >> -shift) : 0;
  }

  __int128 sum_ = 0;
};

using RateSum = ExactSum<40>;   // bytes/s
using ShareSum = ExactSum<80>;  // shares of a route

}  // namespace rostam::flow
