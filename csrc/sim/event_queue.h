// EventQueue: the clock and the pending events of one simulation.
// Events of one instant share a bucket, so the heap holds instants and not events: symmetric ranks that act
// together cost one heap operation. Order: time, then priority, then the order of scheduling.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "sim/sim_time.h"

namespace rostam {

// Whoever schedules events; `payload` comes back as it was given.
class EventHandler {
 public:
  virtual ~EventHandler() = default;
  virtual void on_event(uint64_t payload) = 0;
};

// Within an instant all kNormal events run (those they add for the same instant too) before kSolve ones,
// so that rates are solved once after everything that changed at that instant.
enum class Priority : uint8_t { kNormal = 0, kSolve = 1 };

class EventQueue {
 public:
  SimTime now() const { return now_; }
  bool is_empty() const { return heap_.empty(); }
  int64_t num_events() const { return num_events_; }

  // REQUIRES: time >= now(); handler outlives the event. Throws: InternalError otherwise.
  void schedule(SimTime time, Priority priority, EventHandler* handler, uint64_t payload);

  // Runs the next event and moves the clock to it. REQUIRES: !is_empty().
  void run_next();

 private:
  struct Event {
    EventHandler* handler;
    uint64_t payload;
  };
  struct Bucket {
    int64_t time_ps = 0;
    size_t next[2] = {0, 0};
    std::vector<Event> events[2];
  };

  Bucket& bucket_at(int64_t time_ps);
  void release_top();

  SimTime now_;
  int64_t num_events_ = 0;
  std::deque<Bucket> buckets_;                       // stable storage, recycled through free_
  std::vector<uint32_t> free_;
  std::vector<std::pair<int64_t, uint32_t>> heap_;   // (time, bucket), earliest on top
  std::unordered_map<int64_t, uint32_t> by_time_;
  uint32_t last_bucket_ = 0;                         // most pushes follow the previous one
  int64_t last_time_ps_ = -1;
};

}  // namespace rostam
