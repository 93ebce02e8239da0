// ReductionTable: partial sums by address in a switch, in the order of their last use.
// Example: table.add(address, value, 1); table.take(address); table.oldest()
#pragma once

#include <cstdint>
#include <iterator>
#include <list>
#include <unordered_map>

#include "sim/errors.h"

namespace rostam::packet {

struct Partial {
  int64_t address = 0;
  int64_t sum = 0;
  int32_t count = 0;  // operands in it
};

class ReductionTable {
 public:
  explicit ReductionTable(int64_t entries) : entries_(entries) {}

  bool is_full() const { return size() >= entries_; }
  bool has(int64_t address) const { return places_.count(address) > 0; }
  int64_t size() const { return static_cast<int64_t>(order_.size()); }

  // Takes an entry. REQUIRES: one is free, and the address has none.
  void open(int64_t address) {
    ROSTAM_CHECK(!is_full() && !has(address), "address " << address << " takes an entry of " << size());
    places_[address] = order_.insert(order_.end(), {address, 0, 0});
  }
  // Returns the operands in it now. REQUIRES: the address has an entry.
  int32_t add(const Partial& operand) {
    const auto place = places_.at(operand.address);
    place->sum += operand.sum;
    place->count += operand.count;
    order_.splice(order_.end(), order_, place);
    return place->count;
  }
  Partial take(int64_t address) {
    const auto found = places_.find(address);
    const Partial taken = *found->second;
    order_.erase(found->second);
    places_.erase(found);
    return taken;
  }
  // The n-th least recently used. Cost: n.
  int64_t oldest(int64_t n = 0) const { return std::next(order_.begin(), n)->address; }
  const std::list<Partial>& entries() const { return order_; }

 private:
  int64_t entries_;
  std::list<Partial> order_;
  std::unordered_map<int64_t, std::list<Partial>::iterator> places_;
};

}  // namespace rostam::packet
