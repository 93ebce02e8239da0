#include "circuits/relays.h"

#include <algorithm>
#include <utility>

namespace rostam::circuits {

RelayPaths::RelayPaths(const PairList& pairs, const std::vector<int32_t>& count)
    : pairs_(pairs),
      out_(static_cast<size_t>(pairs.num_accelerators)),
      in_(out_.size()),
      is_on_way_(out_.size(), 0),
      held_(out_.size(), 0) {
  for (int32_t p = 0; p < pairs.size(); ++p) {
    if (count[p] == 0) continue;
    out_[pairs.src[p]].push_back(p);
    in_[pairs.dst[p]].push_back(p);
  }
}

void RelayPaths::search_from(int32_t source) {
  if (std::exchange(source_, source) == source) return;
  distance_.assign(out_.size(), -1);
  distance_[source] = 0;
  queue_.assign(1, source);
  for (size_t i = 0; i < queue_.size(); ++i) {
    for (const int32_t next : out_[queue_[i]]) {
      const int32_t there = pairs_.dst[next];
      if (distance_[there] >= 0) continue;
      distance_[there] = distance_[queue_[i]] + 1;
      queue_.push_back(there);
    }
  }
}

bool RelayPaths::reaches(int32_t pair) {
  search_from(pairs_.src[pair]);
  return distance_[pairs_.dst[pair]] > 0;
}

Relay RelayPaths::find(int32_t pair) {
  if (!reaches(pair)) return {};
  const int32_t source = pairs_.src[pair], end = pairs_.dst[pair];
  // Backwards what lies on a shortest chain, forwards its shares.
  std::vector<int32_t> on_way = {end};
  is_on_way_[end] = 1;
  for (size_t i = 0; i < on_way.size(); ++i) {
    for (const int32_t before : in_[on_way[i]]) {
      const int32_t there = pairs_.src[before];
      if (is_on_way_[there] || distance_[there] < 0 || distance_[there] != distance_[on_way[i]] - 1) continue;
      is_on_way_[there] = 1;
      on_way.push_back(there);
    }
  }
  const auto is_next = [&](int32_t here, int32_t hop) {
    const int32_t there = pairs_.dst[hop];
    return is_on_way_[there] != 0 && distance_[there] == distance_[here] + 1;
  };
  Relay relay;
  relay.num_circuits = distance_[end];
  std::vector<int32_t> reached = {source};
  held_[source] = 1;
  for (size_t i = 0; i < reached.size() && reached[i] != end; ++i) {
    const int32_t here = reached[i];
    const auto num_next =
        std::count_if(out_[here].begin(), out_[here].end(), [&](int32_t h) { return is_next(here, h); });
    const double part = held_[here] / static_cast<double>(num_next);
    for (const int32_t hop : out_[here]) {
      if (!is_next(here, hop)) continue;
      relay.hops.push_back({hop, part});
      if (held_[pairs_.dst[hop]] == 0) reached.push_back(pairs_.dst[hop]);
      held_[pairs_.dst[hop]] += part;
    }
  }
  for (const int32_t one : on_way) {
    is_on_way_[one] = 0;
    held_[one] = 0;
  }
  return relay;
}

bool reaches_all(const PairList& pairs, const std::vector<double>& num_bytes, const Setting& setting) {
  const std::vector<int32_t> count = count_circuits(setting, static_cast<size_t>(pairs.size()));
  RelayPaths paths(pairs, count);
  for (int32_t p = 0; p < pairs.size(); ++p) {
    if (num_bytes[p] > 0 && count[p] == 0 && !paths.reaches(p)) return false;
  }
  return true;
}

std::vector<int32_t> ring_pairs(const PairList& pairs, bool mirrored) {
  std::vector<int32_t> ends = pairs.src;
  ends.insert(ends.end(), pairs.dst.begin(), pairs.dst.end());
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  std::vector<int32_t> next(static_cast<size_t>(pairs.num_accelerators), -1);
  for (size_t i = 0; i < ends.size(); ++i) next[ends[i]] = ends[(i + 1) % ends.size()];
  std::vector<int32_t> ring;
  for (int32_t p = 0; p < pairs.size(); ++p) {
    const int32_t src = pairs.src[p], dst = pairs.dst[p];
    if (next[src] == dst || (mirrored && next[dst] == src)) ring.push_back(p);
  }
  return ring;
}

}  // namespace rostam::circuits
