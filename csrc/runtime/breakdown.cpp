#include "runtime/breakdown.h"

#include <algorithm>

namespace rostam::runtime {

using workload::kBubbleBucket;
using workload::kComputeBucket;
using workload::kFirstCategoryBucket;
using workload::kLaunchBucket;
using workload::PathNode;
using workload::TaskKind;

Breakdown::Breakdown(const WeightedSystem& system, const Jobs& jobs, const Participations& participations)
    : system_(system),
      jobs_(jobs),
      participations_(participations),
      num_buckets_(system.graph->categories.size() + kFirstCategoryBucket),
      spans_(system.devices.size()) {}

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

// Until `ready` it waited for the dependency that ended last: a message is exposed from the moment it was sent, before
// that the device's own collectives are, and where none was pending it is bubble; a collective is exposed while this
// rank is in it. After `ready` the launch is left.
void Breakdown::account_idle(int32_t d, SimTime from, const TaskState& task, SimTime start) {
  SimTime cursor = from;
  if (!task.cause.is_empty() && task.ready > from) {
    const PathNode& cause = *task.cause;
    const Task& awaited = system_.graph->templates[cause.template_id].tasks[cause.task];
    const SimTime ready = std::min(task.ready, start);
    if (awaited.kind == TaskKind::kRecv) {
      const SimTime sent = std::min(std::max(cursor, cause.start), ready);
      account_unsent(d, cursor, sent);
      cursor = sent;
    }
    if (awaited.kind != TaskKind::kCompute) account(d, kFirstCategoryBucket + awaited.category, cursor, ready);
    cursor = ready;
  }
  account(d, kLaunchBucket, cursor, start);
  spans_[d].clear();
}

// The device waits for a message that is not sent yet: its own pending collectives are exposed, the rest is bubble.
void Breakdown::account_unsent(int32_t d, SimTime from, SimTime to) {
  std::vector<Span> spans = spans_[d];
  participations_.for_each_joined(
      d, [&](const Participation& part) { spans.push_back({part.joined, to, part.category}); });
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.start < b.start; });
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

void Breakdown::end_collective(int32_t d, SimTime joined, SimTime end, int32_t category) {
  spans_[d].push_back({joined, end, category});
}

void Breakdown::restart(int32_t d, int32_t iteration) {
  spans_[d].clear();
  for (size_t w = static_cast<size_t>(iteration); w < buckets_ps_.size(); ++w) {
    if (!buckets_ps_[w].empty()) std::fill_n(&buckets_ps_[w][static_cast<size_t>(d) * num_buckets_], num_buckets_, 0);
  }
}

void Breakdown::fill(workload::SessionResult& result) const {
  result.num_buckets = static_cast<int32_t>(num_buckets_);
  result.breakdown_ps.assign(system_.devices.size() * num_buckets_, 0);
  for (size_t d = 0; d < system_.devices.size(); ++d) {
    const std::vector<SimTime>& ends = jobs_.ends_of(static_cast<int32_t>(d));
    const size_t window = ends.size() - 2;
    int64_t* const row = &result.breakdown_ps[d * num_buckets_];
    if (window < buckets_ps_.size() && !buckets_ps_[window].empty()) {
      std::copy_n(&buckets_ps_[window][d * num_buckets_], num_buckets_, row);
    }
    // What the device spent after its last task, waiting for the others to end the iteration, is bubble.
    int64_t accounted = 0;
    for (size_t b = 0; b < num_buckets_; ++b) accounted += row[b];
    const int64_t length = (ends[window + 1] - ends[window]).ps();
    ROSTAM_CHECK(accounted <= length,
                 "device " << d << " accounts for " << accounted << " ps of an iteration of " << length << " ps");
    row[kBubbleBucket] += length - accounted;
  }
}

}  // namespace rostam::runtime
