#include "runtime/critical_path.h"

namespace rostam::runtime {

CriticalPath::Ref CriticalPath::add(const PathNode& node, const Ref& parent) {
  if (!parent.is_empty()) ++links_[parent.index()].refs;
  int32_t index;
  if (free_.empty()) {
    index = static_cast<int32_t>(nodes_.size());
    nodes_.push_back(node);
    links_.push_back({parent.index(), 0});
  } else {
    index = free_.back();
    free_.pop_back();
    nodes_[index] = node;
    links_[index] = {parent.index(), 0};
  }
  return Ref(this, index);
}

void CriticalPath::release(int32_t index) {
  // A loop, not recursion: a chain may be millions of tasks long.
  while (index >= 0 && --links_[index].refs == 0) {
    free_.push_back(index);
    index = links_[index].parent;
  }
}

std::vector<PathNode> CriticalPath::chain(const Ref& last) const {
  std::vector<PathNode> nodes;
  for (int32_t index = last.index(); index >= 0; index = links_[index].parent) nodes.push_back(nodes_[index]);
  return nodes;
}

std::vector<PathNode> CriticalPath::chain_since(const Ref& last, SimTime begin) const {
  std::vector<PathNode> nodes;
  for (int32_t index = last.index(); index >= 0; index = links_[index].parent) {
    const PathNode& node = nodes_[index];
    if (!node.is_join && node.end <= begin) break;
    nodes.push_back(node);
  }
  return nodes;
}

}  // namespace rostam::runtime
