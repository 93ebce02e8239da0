// HopStore: the links of routes, in blocks that hold those of many routes one behind another; they stay where they are.
// Example: Hops hops; store.assign(route.links, hops); hops.size() == route.links.size()
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "routing/route.h"

namespace rostam::flow {

// The links of one route.
class Hops {
 public:
  uint32_t size() const { return size_; }
  const routing::LinkShare* begin() const { return first_; }
  const routing::LinkShare* end() const { return first_ + size_; }
  const routing::LinkShare& operator[](uint32_t hop) const { return first_[hop]; }
  void clear() { size_ = 0; }

 private:
  friend class HopStore;
  routing::LinkShare* first_ = nullptr;
  uint32_t size_ = 0;
  uint32_t room_ = 0;
};

class HopStore {
 public:
  // Sets `hops` to these links, in the place that it has where they fit.
  void assign(const std::vector<routing::LinkShare>& links, Hops& hops) {
    if (links.size() > hops.room_) take_room(links.size(), hops);
    std::copy(links.begin(), links.end(), hops.first_);
    hops.size_ = static_cast<uint32_t>(links.size());
  }

 private:
  static constexpr size_t kFirstBlock = 64, kLastBlock = 4096;  // links

  // A route that outgrows its place gets twice as much, so that places that are given up are never more than those in
  // use.
  void take_room(size_t size, Hops& hops) {
    const size_t room = std::max(size, size_t{2} * hops.room_);
    if (blocks_.empty() || blocks_.back().capacity() - blocks_.back().size() < room) {
      const size_t next = blocks_.empty() ? kFirstBlock : std::min(kLastBlock, 2 * blocks_.back().capacity());
      blocks_.emplace_back();
      blocks_.back().reserve(std::max(room, next));
    }
    std::vector<routing::LinkShare>& block = blocks_.back();
    const size_t first = block.size();
    block.resize(first + room);
    hops.first_ = block.data() + first;
    hops.room_ = static_cast<uint32_t>(room);
  }

  std::vector<std::vector<routing::LinkShare>> blocks_;  // never filled beyond what they reserve
};

}  // namespace rostam::flow
