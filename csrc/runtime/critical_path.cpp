#include "runtime/critical_path.h"

#include <algorithm>

namespace rostam::runtime {

CriticalPath::Ref CriticalPath::add(const PathNode& node, const Ref& parent) {
  if (nodes_.size() == nodes_.capacity()) make_room();
  parents_.push_back(place_of(parent));
  if (free_.empty()) {
    free_.push_back(static_cast<int32_t>(held_.size()));
    held_.emplace_back();
  }
  const int32_t index = free_.back();
  free_.pop_back();
  held_[index] = {static_cast<int32_t>(nodes_.size()), 1};
  nodes_.push_back(node);
  return Ref(this, index);
}

// At least half of the room is free after it, so that a sweep costs each node added since the last one a share.
void CriticalPath::make_room() {
  sweep();
  if (nodes_.size() > nodes_.capacity() / 2 || nodes_.capacity() == 0) {
    nodes_.reserve(std::max(kFirstRoom, 2 * nodes_.capacity()));
  }
}

void CriticalPath::sweep() {
  constexpr int32_t kDropped = -1, kKept = 0;
  moved_.assign(nodes_.size(), kDropped);
  for (const Held& one : held_) {
    if (one.refs > 0) moved_[one.place] = kKept;
  }
  for (size_t k = nodes_.size(); k-- > 0;) {
    if (moved_[k] == kKept && parents_[k] >= 0) moved_[parents_[k]] = kKept;
  }
  size_t num_kept = 0;
  for (size_t k = 0; k < nodes_.size(); ++k) {
    if (moved_[k] == kDropped) continue;
    moved_[k] = static_cast<int32_t>(num_kept);
    nodes_[num_kept] = nodes_[k];
    parents_[num_kept] = parents_[k] < 0 ? -1 : moved_[parents_[k]];
    ++num_kept;
  }
  nodes_.resize(num_kept);
  parents_.resize(num_kept);
  for (Held& one : held_) {
    if (one.refs > 0) one.place = moved_[one.place];
  }
}

std::vector<PathNode> CriticalPath::chain(const Ref& last) const {
  std::vector<PathNode> nodes;
  for (int32_t place = place_of(last); place >= 0; place = parents_[place]) nodes.push_back(nodes_[place]);
  return nodes;
}

std::vector<PathNode> CriticalPath::chain_since(const Ref& last, SimTime begin) const {
  std::vector<PathNode> nodes;
  for (int32_t place = place_of(last); place >= 0; place = parents_[place]) {
    const PathNode& node = nodes_[place];
    if (!node.is_join && node.end <= begin) break;
    nodes.push_back(node);
  }
  return nodes;
}

}  // namespace rostam::runtime
