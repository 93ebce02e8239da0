// MemberEvent: an event handler that calls one member function of its owner, and what such events carry: a device and
// a stream, slot or version of it, in one number.
#pragma once

#include <cstdint>

#include "sim/event_queue.h"

namespace rostam::runtime {

template <typename Owner>
class MemberEvent : public EventHandler {
 public:
  using Method = void (Owner::*)(uint64_t);
  using Fetch = void (Owner::*)(uint64_t) const;
  MemberEvent(Owner& owner, Method method, Fetch fetch = nullptr) : owner_(owner), method_(method), fetch_(fetch) {}
  void on_event(uint64_t payload) override { (owner_.*method_)(payload); }
  void fetch(uint64_t payload) const override {
    if (fetch_ != nullptr) (owner_.*fetch_)(payload);
  }

 private:
  Owner& owner_;
  Method method_;
  Fetch fetch_;
};

inline uint64_t pack(int32_t device, int32_t index) { return uint64_t(uint32_t(device)) << 32 | uint32_t(index); }
inline int32_t high(uint64_t payload) { return static_cast<int32_t>(payload >> 32); }
inline int32_t low(uint64_t payload) { return static_cast<int32_t>(payload & 0xFFFFFFFFu); }

// The same of a job that may be cut and started again: with the job's epoch, so that what was under way before is known
// as such. 20 bits of index, 11 of epoch.
constexpr int32_t kMaxIndex = (1 << 20) - 1, kMaxEpoch = (1 << 11) - 1;
inline uint64_t pack(int32_t device, int32_t index, int32_t epoch) { return pack(device, epoch << 20 | index); }
inline int32_t index_of(uint64_t payload) { return low(payload) & kMaxIndex; }
inline int32_t epoch_of(uint64_t payload) { return low(payload) >> 20; }

}  // namespace rostam::runtime
