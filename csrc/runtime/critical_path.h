// CriticalPath: for every live task the chain of tasks that decided when it could start. Chains share their tails
// and are reference counted, so what no live task depends on is freed and memory follows what is in flight.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "workload/session_result.h"

namespace rostam::runtime {

using workload::PathNode;

class CriticalPath {
 public:
  // A counted reference to a node; empty where a task waited for nothing.
  class Ref {
   public:
    Ref() = default;
    Ref(CriticalPath* owner, int32_t index) : owner_(owner), index_(index) { acquire(); }
    Ref(const Ref& other) : owner_(other.owner_), index_(other.index_) { acquire(); }
    Ref(Ref&& other) noexcept : owner_(other.owner_), index_(std::exchange(other.index_, -1)) {}
    Ref& operator=(Ref other) noexcept {
      std::swap(owner_, other.owner_);
      std::swap(index_, other.index_);
      return *this;
    }
    ~Ref() {
      if (index_ >= 0) owner_->release(index_);
    }
    bool is_empty() const { return index_ < 0; }
    int32_t index() const { return index_; }
    const PathNode& operator*() const { return owner_->nodes_[index_]; }
    const PathNode* operator->() const { return &owner_->nodes_[index_]; }

   private:
    void acquire() {
      if (index_ >= 0) ++owner_->links_[index_].refs;
    }
    CriticalPath* owner_ = nullptr;
    int32_t index_ = -1;
  };

  // Adds `node` behind `parent` (may be empty).
  Ref add(const PathNode& node, const Ref& parent);

  // The chain that ends in `last`, latest first.
  std::vector<PathNode> chain(const Ref& last) const;
  // The part of it that lies, or reaches, behind a time.
  std::vector<PathNode> chain_since(const Ref& last, SimTime begin) const;

  int64_t num_live() const { return static_cast<int64_t>(nodes_.size() - free_.size()); }

 private:
  struct Link {
    int32_t parent;  // -1 for none
    int32_t refs;
  };
  void release(int32_t index);

  std::vector<PathNode> nodes_;
  std::vector<Link> links_;  // of nodes_
  std::vector<int32_t> free_;
};

}  // namespace rostam::runtime
