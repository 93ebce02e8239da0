// Participations: every rank's part in the collectives of its slots, from its join or the first message that comes to
// it until it is through.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "folding/weighted_system.h"
#include "runtime/tasks.h"
#include "sim/few_list.h"

namespace rostam::runtime {

// A message that may not start before its receiver has reached `step`.
struct Deferred {
  int32_t message = 0;
  int32_t step = 0;
};

struct Participation {
  bool is_joined = false;
  bool is_step_started = false;
  int32_t step = 0;
  int32_t pending_sends = 0;
  int32_t ordered_arrivals = 0;
  int64_t chunks_sent = 0;
  std::vector<int64_t> arrivals;  // per step, where order is not enough: of all that the device stands for
  std::vector<Deferred> deferred;
  std::vector<collectives::Transfer> messages;  // of every step, if all have the same
  int64_t sequence = 0;                         // the instance and task that joined
  int32_t task = 0;
  int32_t iteration = 0;
  const workload::Task* body = nullptr;  // that task
  int64_t chunk_bytes = 0;
  int32_t category = 0;
  SimTime joined;
  CriticalPath::Ref origin;  // the join that decided when the current step could start
  bool is_quiet = false;     // it goes without messages; through at quiet_end if all have joined
  SimTime quiet_end = SimTime::never();
  CriticalPath::Ref quiet_origin;
};

class Participations {
 public:
  explicit Participations(const folding::WeightedSystem& system) {
    for (const workload::Device& device : system.devices) {
      first_slot_.push_back(slots_.size());
      slots_.resize(slots_.size() + device.slots.size());
    }
    first_slot_.push_back(slots_.size());
  }

  // The device joins the next collective on the slot; returns which one it is. Its part is at() of that.
  uint32_t join(int32_t device, int32_t slot) { return at(device, slot).num_joined++; }

  // Asks for what an event of the slot is going to look at.
  void fetch(int32_t device, int32_t slot) const {
    __builtin_prefetch(&slots_[first_slot_[device] + static_cast<size_t>(slot)], 1);
  }

  // The device's part in the `occurrence`-th collective on the slot, made if it is the first to be heard of. Stays
  // where it is until it is taken.
  Participation& at(int32_t device, int32_t slot, uint32_t occurrence) {
    Slot& state = at(device, slot);
    ROSTAM_CHECK(occurrence >= state.first, "a message for a collective that has ended");
    const uint32_t place = occurrence - state.first;
    while (state.queue.size() <= place) state.queue.push_back(take_part());
    return *state.queue[place];
  }

  // The part in the oldest collective on the slot, or null.
  Participation* front(int32_t device, int32_t slot) {
    Slot& state = at(device, slot);
    return state.queue.empty() ? nullptr : state.queue[0];
  }
  Participation take_front(int32_t device, int32_t slot) {
    Slot& state = at(device, slot);
    Participation part = give_back(state.queue[0]);
    state.queue.pop_front();
    ++state.first;
    return part;
  }

  // The device is in no collective, and the next one on each slot is the first.
  void restart(int32_t device) {
    for (size_t k = first_slot_[device]; k < first_slot_[device + 1]; ++k) {
      for (Participation* part : slots_[k].queue) give_back(part);
      slots_[k] = Slot();
    }
  }

  // Calls visit(part) for every part that the device has joined.
  template <typename Visit>
  void for_each_joined(int32_t device, Visit visit) const {
    for (size_t k = first_slot_[device]; k < first_slot_[device + 1]; ++k) {
      for (const Participation* part : slots_[k].queue) {
        if (part->is_joined) visit(*part);
      }
    }
  }

 private:
  struct Slot {
    uint32_t first = 0;
    uint32_t num_joined = 0;
    FewList<Participation*, 2> queue;  // occurrences first, first + 1, ...
  };
  Slot& at(int32_t device, int32_t slot) { return slots_[first_slot_[device] + static_cast<size_t>(slot)]; }
  Participation* take_part() {
    if (free_.empty()) return &parts_.emplace_back();
    Participation* part = free_.back();
    free_.pop_back();
    return part;
  }
  Participation give_back(Participation* part) {
    free_.push_back(part);
    return std::exchange(*part, Participation());
  }

  std::vector<size_t> first_slot_;  // per device, and the end
  std::vector<Slot> slots_;
  // Those of all slots: what ended last, and is still in the processor's caches, is used again first.
  std::deque<Participation> parts_;
  std::vector<Participation*> free_;
};

}  // namespace rostam::runtime
