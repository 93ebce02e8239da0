// EventQueue: the clock and the pending events of one simulation.
// Events of one instant and priority share a bucket, so the heap holds instants and not events: symmetric ranks that
// act together cost one heap operation. Order: time, then priority, then the order of scheduling.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/sim_time.h"

namespace rostam {

// Whoever schedules events; `payload` comes back as it was given.
class EventHandler {
 public:
  virtual ~EventHandler() = default;
  virtual void on_event(uint64_t payload) = 0;
  // The event is likely to come next: a handler may ask for memory that on_event() is going to look at.
  virtual void fetch(uint64_t payload) const { static_cast<void>(payload); }
  // The event comes within its instant after some others: of what on_event() is going to look at the handler may ask
  // for what the payload names (stage 0), some events later for what that names (1), and so on (2).
  virtual void fetch_stage(uint64_t payload, uint32_t stage) const {
    static_cast<void>(payload);
    static_cast<void>(stage);
  }
};

// Within an instant all kNormal events run (those they add for the same instant too) before kSolve ones,
// so that rates are solved once after everything that changed at that instant.
enum class Priority : uint8_t { kNormal = 0, kSolve = 1 };

class EventQueue {
 public:
  EventQueue() { recent_.fill(kNone); }

  SimTime now() const { return now_; }
  bool is_empty() const { return num_pending_ == 0; }
  int64_t num_events() const { return num_events_; }

  // REQUIRES: time >= now(); handler outlives the event. Throws: InternalError otherwise.
  void schedule(SimTime time, Priority priority, EventHandler* handler, uint64_t payload);

  // Runs the next event and moves the clock to it. REQUIRES: !is_empty().
  void run_next();

  // When the next event is due. REQUIRES: !is_empty().
  SimTime next_time();
  // Hands all pending events over to another queue, in their order. REQUIRES: none is due before its now().
  void move_to(EventQueue& other);

 private:
  static constexpr uint32_t kNone = 0xFFFFFFFFu;

  struct Event {
    EventHandler* handler;
    uint64_t payload;
  };
  struct alignas(64) Bucket {
    int64_t time_ps = 0;
    uint32_t next = 0, num_events = 0;
    Priority priority = Priority::kNormal;
    Event first{nullptr, 0};   // most instants have a single event: no memory of its own for it
    std::vector<Event> later;  // the others
  };
  // Earliest first; buckets of one instant and priority in the order in which they were made.
  struct Place {
    int64_t time_ps;
    uint64_t priority_and_number;
    uint32_t bucket;
    bool operator>(const Place& other) const {
      return time_ps != other.time_ps ? time_ps > other.time_ps : priority_and_number > other.priority_and_number;
    }
  };

  static size_t recent_slot(int64_t time_ps, Priority priority);
  uint32_t make_bucket(int64_t time_ps, Priority priority);
  void release_top();
  void release_dry();
  void fetch_next() const;
  static void fetch_ahead(const Bucket& bucket);

  SimTime now_;
  int64_t num_events_ = 0;
  int64_t num_pending_ = 0;
  uint64_t num_buckets_made_ = 0;
  std::vector<Bucket> buckets_;  // recycled through free_; an event's handler may make more, which moves them
  std::vector<uint32_t> free_;
  std::vector<Place> heap_;
  // The bucket last made for each slot of (time, priority). One that was displaced gets no more events, so a second
  // bucket of the same instant holds only later ones and the order of scheduling is kept.
  std::array<uint32_t, 1024> recent_;
};

}  // namespace rostam
