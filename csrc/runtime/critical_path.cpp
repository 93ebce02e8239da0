#include "runtime/critical_path.h"

namespace rostam::runtime {

CriticalPath::Ref CriticalPath::add(PathNode node, const Ref& parent) {
  node.parent = parent.index();
  node.refs = 0;
  if (node.parent >= 0) ++nodes_[node.parent].refs;
  int32_t index;
  if (free_.empty()) {
    index = static_cast<int32_t>(nodes_.size());
    nodes_.push_back(node);
  } else {
    index = free_.back();
    free_.pop_back();
    nodes_[index] = node;
  }
  return Ref(this, index);
}

void CriticalPath::release(int32_t index) {
  // A loop, not recursion: a chain may be millions of tasks long.
  while (index >= 0 && --nodes_[index].refs == 0) {
    const int32_t parent = nodes_[index].parent;
    free_.push_back(index);
    index = parent;
  }
}

std::vector<PathNode> CriticalPath::chain(const Ref& last) const {
  std::vector<PathNode> nodes;
  for (int32_t index = last.index(); index >= 0; index = nodes_[index].parent) nodes.push_back(nodes_[index]);
  return nodes;
}

}  // namespace rostam::runtime
