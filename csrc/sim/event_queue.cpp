#include "sim/event_queue.h"

#include <algorithm>
#include <functional>

#include "sim/random.h"

namespace rostam {

size_t EventQueue::recent_slot(int64_t time_ps, Priority priority) {
  return mix(static_cast<uint64_t>(time_ps) * 2 + static_cast<uint64_t>(priority)) % 1024;
}

void EventQueue::schedule(SimTime time, Priority priority, EventHandler* handler, uint64_t payload) {
  ROSTAM_CHECK(time >= now_, "an event at " << time.ps() << " ps lies before now, " << now_.ps() << " ps");
  uint32_t& recent = recent_[recent_slot(time.ps(), priority)];
  const bool is_known =
      recent != kNone && buckets_[recent].time_ps == time.ps() && buckets_[recent].priority == priority;
  if (!is_known) recent = make_bucket(time.ps(), priority);
  Bucket& bucket = buckets_[recent];
  if (bucket.num_events++ == 0) {
    bucket.first = {handler, payload};
  } else {
    bucket.later.push_back({handler, payload});
  }
  ++num_pending_;
}

uint32_t EventQueue::make_bucket(int64_t time_ps, Priority priority) {
  uint32_t index;
  if (free_.empty()) {
    index = static_cast<uint32_t>(buckets_.size());
    buckets_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  buckets_[index].time_ps = time_ps;
  buckets_[index].priority = priority;
  heap_.push_back({time_ps, static_cast<uint64_t>(priority) << 62 | num_buckets_made_++, index});
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  return index;
}

void EventQueue::release_top() {
  const uint32_t index = heap_.front().bucket;
  std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
  heap_.pop_back();
  Bucket& bucket = buckets_[index];
  uint32_t& recent = recent_[recent_slot(bucket.time_ps, bucket.priority)];
  if (recent == index) recent = kNone;
  bucket.later.clear();
  bucket.next = bucket.num_events = 0;
  free_.push_back(index);
}

// In large systems every event looks at memory that was last looked at thousands of events ago. What the next one needs
// comes while the present one is at work.
void EventQueue::fetch_next() const {
  for (size_t k = 3; k < std::min<size_t>(7, heap_.size()); ++k) __builtin_prefetch(&buckets_[heap_[k].bucket]);
  if (heap_.size() < 3) return;
  const Bucket& next = buckets_[heap_[heap_[1] > heap_[2] ? 2 : 1].bucket];
  if (next.num_events > 0) next.first.handler->fetch(next.first.payload);
}

// The same among the events of an instant, where there are many.
void EventQueue::fetch_ahead(const Bucket& bucket) {
  constexpr uint32_t kStages = 3, kBetween = 3;  // events from one stage to the next: memory takes as long as some
  for (uint32_t stage = 0; stage < kStages; ++stage) {
    const uint32_t place = bucket.next + (kStages - stage) * kBetween;
    if (place >= bucket.num_events) continue;
    const Event& event = bucket.later[place - 1];
    event.handler->fetch_stage(event.payload, stage);
  }
}

// A bucket that ran dry below a more urgent one is still in the heap.
void EventQueue::release_dry() {
  while (buckets_[heap_.front().bucket].next == buckets_[heap_.front().bucket].num_events) release_top();
}

SimTime EventQueue::next_time() {
  release_dry();
  return SimTime::from_ps(heap_.front().time_ps);
}

void EventQueue::move_to(EventQueue& other) {
  for (; num_pending_ > 0; --num_pending_) {
    release_dry();
    Bucket& bucket = buckets_[heap_.front().bucket];
    const Event& event = bucket.next == 0 ? bucket.first : bucket.later[bucket.next - 1];
    ++bucket.next;
    other.schedule(SimTime::from_ps(bucket.time_ps), bucket.priority, event.handler, event.payload);
  }
}

void EventQueue::run_next() {
  release_dry();
  const uint32_t index = heap_.front().bucket;
  Bucket& bucket = buckets_[index];
  now_ = SimTime::from_ps(bucket.time_ps);
  const Event event = bucket.next == 0 ? bucket.first : bucket.later[bucket.next - 1];
  if (bucket.next == 0) fetch_next();
  if (bucket.next + 3 < bucket.num_events) fetch_ahead(bucket);
  ++bucket.next;
  ++num_events_;
  --num_pending_;
  event.handler->on_event(event.payload);
  const Bucket& after = buckets_[index];
  if (after.next == after.num_events && heap_.front().bucket == index) release_top();
}

}  // namespace rostam
