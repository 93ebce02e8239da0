#include "runtime/breakdown.h"

#include <algorithm>
#include <tuple>

namespace rostam::runtime {

using workload::kBubbleBucket;
using workload::kComputeBucket;
using workload::kFirstCategoryBucket;
using workload::kHostBucket;
using workload::kLaunchBucket;

Breakdown::Breakdown(const WeightedSystem& system, const Jobs& jobs, const Participations& participations)
    : system_(system),
      jobs_(jobs),
      participations_(participations),
      num_buckets_(system.graph->categories.size() + kFirstCategoryBucket),
      ended_(system.devices.size()) {
  std::vector<bool> computes;  // by program
  for (const workload::Program& program : system.graph->programs) {
    const std::vector<int32_t> used = program.templates();
    computes.push_back(std::any_of(used.begin(), used.end(),
                                   [&system](int32_t id) { return system.graph->templates[id].has_compute; }));
  }
  for (size_t d = 0; d < ended_.size(); ++d) ended_[d].is_kept = computes[system.devices[d].program];
}

// Adds [from, to] to a bucket, cut at the iteration ends known by now: to <= now, so all that matter are known.
void Breakdown::account(int32_t d, int32_t bucket, SimTime from, SimTime to) {
  if (to <= from) return;
  const std::vector<SimTime>& ends = jobs_.ends_of(d);
  // Window w lies between ends[w] and ends[w + 1]; the last one is open.
  for (size_t w = ends.size(); w-- > 0 && from < to;) {
    const SimTime begin = std::max(from, ends[w]);
    if (begin >= to) continue;
    if (buckets_ps_.size() <= w) buckets_ps_.resize(w + 1);
    if (buckets_ps_[w].empty()) buckets_ps_[w].assign(system_.devices.size() * num_buckets_, 0);
    buckets_ps_[w][static_cast<size_t>(d) * num_buckets_ + static_cast<size_t>(bucket)] += (to - begin).ps();
    to = begin;
  }
}

void Breakdown::account_compute(int32_t d, SimTime start, SimTime end) { account(d, kComputeBucket, start, end); }

// Until `ready` it waited for the dependency that ended last; after that, for its launch, then for the host.
void Breakdown::account_idle(int32_t d, SimTime from, const TaskState& task, SimTime launched, SimTime start) {
  const SimTime ready = task.cause.is_empty() ? from : std::max(from, std::min(task.ready, start));
  account_waits(d, from, ready, task.wait);
  account(d, kLaunchBucket, ready, launched);
  account(d, kHostBucket, std::max(ready, launched), start);
  ended_[d].clear();
}

// From the end backwards: a collective is exposed from its launch on (from when its host issued it, if that came
// later), a message from the moment it was sent. Before that the stream waited for what the collective waited for.
void Breakdown::account_waits(int32_t d, SimTime from, SimTime to, int64_t awaited) {
  const Ended& ended = ended_[d];
  SimTime cursor = to;
  while (cursor > from && awaited >= ended.first) {
    const Communication& one = ended.all[static_cast<size_t>(awaited - ended.first)];
    const SimTime end = std::max(from, std::min(one.end, cursor));
    const SimTime since = std::max(from, std::min(one.since, end));
    account_unsent(d, end, cursor);
    const SimTime issued = std::max(since, std::min(one.issued, end));
    account(d, kFirstCategoryBucket + one.category, issued, end);
    account(d, kHostBucket, since, issued);
    cursor = since;
    awaited = one.awaited;
  }
  account_unsent(d, from, cursor);
}

// The device waits for a message that is not sent yet: its own pending collectives are exposed, the rest is bubble.
void Breakdown::account_unsent(int32_t d, SimTime from, SimTime to) {
  if (to <= from) return;
  std::vector<Span>& spans = spans_;
  spans.clear();
  for (const Communication& one : ended_[d].all) {
    if (one.is_collective) spans.push_back({one.start, one.end, one.category});
  }
  participations_.for_each_joined(
      d, [&](const Participation& part) { spans.push_back({part.joined, to, part.category}); });
  // Of those that begin at once the category decides, not the order in which they ended.
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return std::tie(a.start, a.category, a.end) < std::tie(b.start, b.category, b.end);
  });
  SimTime cursor = from;
  for (const Span& span : spans) {
    const SimTime begin = std::max(cursor, span.start), end = std::min(to, span.end);
    if (begin >= end) continue;
    account(d, kBubbleBucket, cursor, begin);
    account(d, kFirstCategoryBucket + span.category, begin, end);
    cursor = end;
  }
  account(d, kBubbleBucket, cursor, to);
}

int64_t Breakdown::end_communication(int32_t d, const Communication& done) {
  Ended& ended = ended_[d];
  if (!ended.is_kept) return -1;
  ended.all.push_back(done);
  return ended.first + static_cast<int64_t>(ended.all.size()) - 1;
}

int64_t Breakdown::awaited_of(int32_t d, int64_t one, int64_t other) const {
  const Ended& ended = ended_[d];
  if (std::min(one, other) < ended.first) return std::max(one, other);
  const Communication& a = ended.all[static_cast<size_t>(one - ended.first)];
  const Communication& b = ended.all[static_cast<size_t>(other - ended.first)];
  return std::tie(b.since, a.category) < std::tie(a.since, b.category) ? one : other;
}

void Breakdown::restart(int32_t d, int32_t iteration) {
  ended_[d].clear();
  for (size_t w = static_cast<size_t>(iteration); w < buckets_ps_.size(); ++w) {
    if (!buckets_ps_[w].empty()) std::fill_n(&buckets_ps_[w][static_cast<size_t>(d) * num_buckets_], num_buckets_, 0);
  }
}

void Breakdown::fill(workload::SessionResult& result) const {
  result.num_buckets = static_cast<int32_t>(num_buckets_);
  result.breakdown_ps.assign(system_.devices.size() * num_buckets_, 0);
  for (size_t d = 0; d < system_.devices.size(); ++d) {
    const std::vector<SimTime>& ends = jobs_.ends_of(static_cast<int32_t>(d));
    const size_t after = ends.size() - 1;
    const size_t first = after - static_cast<size_t>(jobs_.num_averaged(system_.devices[d].job));
    int64_t* const row = &result.breakdown_ps[d * num_buckets_];
    for (size_t w = first; w < std::min(after, buckets_ps_.size()); ++w) {
      if (buckets_ps_[w].empty()) continue;
      const int64_t* const own = &buckets_ps_[w][d * num_buckets_];
      for (size_t b = 0; b < num_buckets_; ++b) row[b] += own[b];
    }
    // What the device spent after its last task, waiting for the others to end an iteration, is bubble.
    int64_t accounted = 0;
    for (size_t b = 0; b < num_buckets_; ++b) accounted += row[b];
    const int64_t length = (ends[after] - ends[first]).ps();
    ROSTAM_CHECK(accounted <= length,
                 "device " << d << " accounts for " << accounted << " ps of iterations of " << length << " ps");
    row[kBubbleBucket] += length - accounted;
  }
}

}  // namespace rostam::runtime
