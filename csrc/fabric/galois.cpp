#include "fabric/galois.h"

#include "sim/errors.h"

namespace rostam::fabric {

GaloisField::GaloisField(int32_t q) : q_(q) {
  for (p_ = 2; p_ < q && q % p_ != 0;) ++p_;
  int32_t rest = q;
  while (q >= 2 && rest % p_ == 0) rest /= p_;
  if (q < 2 || rest != 1) ROSTAM_THROW(ConfigError, "fabric.q is " << q << "; fields have a prime power of elements");
  // x^n plus lower terms, coded like elements: q <= modulus < 2 q. A modulus under which the powers of an element are
  // all others is irreducible: zero divisors have no powers equal to 1.
  for (int32_t modulus = q; modulus < 2 * q; ++modulus) {
    for (int32_t base = 1; base < q; ++base) {
      if (fill_powers(base, modulus)) return;
    }
  }
  ROSTAM_THROW(InternalError, "no field of " << q << " elements was found");
}

int32_t GaloisField::sum(int32_t a, int32_t b) const {
  int32_t total = 0;
  for (int32_t place = 1; place < q_; place *= p_) total += (a / place % p_ + b / place % p_) % p_ * place;
  return total;
}

int32_t GaloisField::difference(int32_t a, int32_t b) const {
  int32_t total = 0;
  for (int32_t place = 1; place < q_; place *= p_) total += (a / place % p_ - b / place % p_ + p_) % p_ * place;
  return total;
}

int32_t GaloisField::slow_product(int32_t a, int32_t b, int32_t modulus) const {
  int32_t total = 0;
  for (int32_t place = q_ / p_; place > 0; place /= p_) {  // Horner's rule over b's digits, the highest first
    const int32_t carry = total / (q_ / p_);               // times x: the coefficient of x^n
    total = total % (q_ / p_) * p_;
    for (int32_t k = 0; k < carry; ++k) total = difference(total, modulus - q_);
    for (int32_t k = 0; k < b / place % p_; ++k) total = sum(total, a);
  }
  return total;
}

bool GaloisField::fill_powers(int32_t base, int32_t modulus) {
  powers_.assign(1, 1);
  log_.assign(static_cast<size_t>(q_), -1);
  log_[1] = 0;
  for (int32_t exponent = 1; exponent < q_ - 1; ++exponent) {
    const int32_t next = slow_product(powers_.back(), base, modulus);
    if (next == 0 || log_[static_cast<size_t>(next)] >= 0) return false;
    log_[static_cast<size_t>(next)] = exponent;
    powers_.push_back(next);
  }
  return slow_product(powers_.back(), base, modulus) == 1;
}

}  // namespace rostam::fabric
