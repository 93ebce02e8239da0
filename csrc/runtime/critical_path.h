// CriticalPath: for every live task the chain of tasks that decided when it could start. Chains share their tails.
// Tasks are written one behind another and never looked at until a chain is asked for; those that no live task depends
// on are swept out when the room is full, in one pass over memory in order, so that memory follows the tasks in flight.
// Counting references to every task instead would touch one that is long out of the caches at every task's end.
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
    // The node's own, as long as there are references to it.
    int32_t index() const { return index_; }
    const PathNode& operator*() const { return owner_->node(*this); }
    const PathNode* operator->() const { return &owner_->node(*this); }

   private:
    friend class CriticalPath;
    Ref(CriticalPath* owner, int32_t index) : owner_(owner), index_(index) {}
    void acquire() {
      if (index_ >= 0) ++owner_->held_[index_].refs;
    }
    CriticalPath* owner_ = nullptr;
    int32_t index_ = -1;  // into held_
  };

  // Adds `node` behind `parent` (may be empty).
  Ref add(const PathNode& node, const Ref& parent);

  // The chain that ends in `last`, latest first.
  std::vector<PathNode> chain(const Ref& last) const;
  // The part of it that lies, or reaches, behind a time.
  std::vector<PathNode> chain_since(const Ref& last, SimTime begin) const;

  // Nodes in memory: those that chains lead to, and others up to the next sweep.
  int64_t num_kept() const { return static_cast<int64_t>(nodes_.size()); }

 private:
  static constexpr size_t kFirstRoom = 4096;  // nodes

  struct Held {  // a node that there are references to
    int32_t place = 0;
    int32_t refs = 0;
  };
  const PathNode& node(const Ref& ref) const { return nodes_[static_cast<size_t>(place_of(ref))]; }
  int32_t place_of(const Ref& ref) const { return ref.is_empty() ? -1 : held_[ref.index()].place; }
  void release(int32_t index) {
    if (--held_[index].refs == 0) free_.push_back(index);
  }
  void make_room();
  void sweep();

  std::vector<PathNode> nodes_;   // parents in front of their children
  std::vector<int32_t> parents_;  // of nodes_; -1 for none
  std::vector<int32_t> moved_;    // of a sweep: -1 for nodes to be dropped, else where they go
  std::vector<Held> held_;
  std::vector<int32_t> free_;  // places of held_ without references
};

}  // namespace rostam::runtime
