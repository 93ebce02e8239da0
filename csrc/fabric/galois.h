// GaloisField: arithmetic of GF(q), q = p^n. An element is a number below q whose digits to base p are the coefficients
// of a polynomial; products are taken modulo the first irreducible polynomial of degree n.
// Example: GaloisField field(9); field.product(field.primitive(), 5);
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rostam::fabric {

class GaloisField {
 public:
  // Throws: ConfigError unless q is a power of a prime. Cost: O(q^2).
  explicit GaloisField(int32_t q);

  int32_t size() const { return q_; }
  int32_t sum(int32_t a, int32_t b) const;
  int32_t difference(int32_t a, int32_t b) const;
  int32_t product(int32_t a, int32_t b) const {
    return a == 0 || b == 0 ? 0 : power((log_[static_cast<size_t>(a)] + log_[static_cast<size_t>(b)]) % (q_ - 1));
  }
  // An element whose powers are all elements other than 0: the smallest one.
  int32_t primitive() const { return power(1 % (q_ - 1)); }
  // primitive() to the power of 0 <= exponent < q - 1.
  int32_t power(int32_t exponent) const { return powers_[static_cast<size_t>(exponent)]; }

 private:
  int32_t slow_product(int32_t a, int32_t b, int32_t modulus) const;
  bool fill_powers(int32_t base, int32_t modulus);

  int32_t q_, p_ = 0;
  std::vector<int32_t> powers_;
  std::vector<int32_t> log_;
};

}  // namespace rostam::fabric
