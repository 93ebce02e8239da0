#include "sim/event_queue.h"

#include <algorithm>
#include <functional>

namespace rostam {

void EventQueue::schedule(SimTime time, Priority priority, EventHandler* handler, uint64_t payload) {
  ROSTAM_CHECK(time >= now_, "an event at " << time.ps() << " ps lies before now, " << now_.ps() << " ps");
  bucket_at(time.ps()).events[static_cast<int>(priority)].push_back({handler, payload});
}

EventQueue::Bucket& EventQueue::bucket_at(int64_t time_ps) {
  if (time_ps == last_time_ps_) return buckets_[last_bucket_];
  auto [entry, is_new] = by_time_.try_emplace(time_ps, 0);
  if (is_new) {
    if (free_.empty()) {
      entry->second = static_cast<uint32_t>(buckets_.size());
      buckets_.emplace_back();
    } else {
      entry->second = free_.back();
      free_.pop_back();
    }
    buckets_[entry->second].time_ps = time_ps;
    heap_.emplace_back(time_ps, entry->second);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }
  last_time_ps_ = time_ps;
  last_bucket_ = entry->second;
  return buckets_[last_bucket_];
}

void EventQueue::release_top() {
  const uint32_t index = heap_.front().second;
  std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
  heap_.pop_back();
  Bucket& bucket = buckets_[index];
  by_time_.erase(bucket.time_ps);
  if (last_time_ps_ == bucket.time_ps) last_time_ps_ = -1;
  for (int p = 0; p < 2; ++p) {
    bucket.events[p].clear();
    bucket.next[p] = 0;
  }
  free_.push_back(index);
}

void EventQueue::run_next() {
  Bucket& bucket = buckets_[heap_.front().second];
  now_ = SimTime::from_ps(bucket.time_ps);
  const int p = bucket.next[0] < bucket.events[0].size() ? 0 : 1;
  const Event event = bucket.events[p][bucket.next[p]++];
  ++num_events_;
  event.handler->on_event(event.payload);
  if (bucket.next[0] == bucket.events[0].size() && bucket.next[1] == bucket.events[1].size()) release_top();
}

}  // namespace rostam
