#include "folding/refinement.h"

#include <algorithm>
#include <unordered_map>

#include "sim/interrupt.h"
#include "sim/random.h"

namespace rostam::folding {

namespace {

class Refiner {
 public:
  Refiner(const std::vector<uint64_t>& colours, const Edges& edges)
      : edges_(edges), class_of_(colours.size()), place_(colours.size()), sum_(colours.size(), 0) {
    std::unordered_map<uint64_t, int32_t> index;
    for (uint32_t v = 0; v < colours.size(); ++v) {
      const auto [entry, is_new] = index.try_emplace(colours[v], static_cast<int32_t>(members_.size()));
      if (is_new) make_class();
      put(v, entry->second);
    }
    for (int32_t c = 0; c < static_cast<int32_t>(members_.size()); ++c) add_work(c);
  }

  std::vector<int32_t> run() {
    while (!work_.empty()) {
      const int32_t splitter = work_.back();
      work_.pop_back();
      is_pending_[splitter] = 0;
      sum_edges(splitter);
      split_touched();
    }
    return class_of_;
  }

 private:
  int32_t make_class() {
    members_.emplace_back();
    is_pending_.push_back(0);
    return static_cast<int32_t>(members_.size()) - 1;
  }

  void put(uint32_t vertex, int32_t c) {
    class_of_[vertex] = c;
    place_[vertex] = static_cast<uint32_t>(members_[c].size());
    members_[c].push_back(vertex);
  }

  void take(uint32_t vertex) {
    std::vector<uint32_t>& from = members_[class_of_[vertex]];
    const uint32_t last = from.back();
    from[place_[vertex]] = last;
    place_[last] = place_[vertex];
    from.pop_back();
  }

  void add_work(int32_t c) {
    if (is_pending_[c] != 0) return;
    is_pending_[c] = 1;
    work_.push_back(c);
  }

  // For every vertex with edges into the class: a sum that tells how many of which label. Sums commute.
  void sum_edges(int32_t splitter) {
    for (const uint32_t member : members_[splitter]) {
      poll_();
      for (const Edges::End& end : edges_.of(member)) {
        if (sum_[end.vertex] == 0) touched_.push_back(end.vertex);
        sum_[end.vertex] += mix(end.label) | 1;  // odd: not 0 but for a chance of 2^-64
      }
    }
  }

  // Splits the classes of the vertices that were touched by their sums.
  void split_touched() {
    std::sort(touched_.begin(), touched_.end());
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    const auto before = [this](uint32_t a, uint32_t b) {
      return class_of_[a] != class_of_[b] ? class_of_[a] < class_of_[b] : sum_[a] < sum_[b];
    };
    std::stable_sort(touched_.begin(), touched_.end(), before);
    for (size_t first = 0; first < touched_.size();) {
      const int32_t c = class_of_[touched_[first]];
      size_t last = first;
      while (last < touched_.size() && class_of_[touched_[last]] == c) ++last;
      split(c, first, last);
      first = last;
    }
    for (const uint32_t vertex : touched_) sum_[vertex] = 0;
    touched_.clear();
  }

  // The members of a class in touched_[first, last), sorted by sums, go to classes of their own, one for each sum;
  // those that were not touched stay, or the first sum's.
  void split(int32_t c, size_t first, size_t last) {
    const auto end_of_sum = [this, last](size_t k) {
      const uint64_t sum = sum_[touched_[k]];
      while (k < last && sum_[touched_[k]] == sum) ++k;
      return k;
    };
    if (members_[c].size() == last - first) first = end_of_sum(first);
    const auto first_new = static_cast<int32_t>(members_.size());
    while (first < last) {
      const size_t next = end_of_sum(first);
      const int32_t part = make_class();
      for (; first < next; ++first) {
        take(touched_[first]);
        put(touched_[first], part);
      }
    }
    const auto end_new = static_cast<int32_t>(members_.size());
    int32_t spared = c;  // what edges into the class were, and into all other parts are, tells those into one of them
    for (auto part = first_new; part < end_new && is_pending_[c] == 0; ++part) {
      if (members_[part].size() > members_[spared].size()) spared = part;
    }
    if (first_new < end_new && spared != c) add_work(c);
    for (auto part = first_new; part < end_new; ++part) {
      if (part != spared) add_work(part);
    }
  }

  const Edges& edges_;
  std::vector<int32_t> class_of_;
  std::vector<uint32_t> place_;  // of each vertex in its class
  std::vector<std::vector<uint32_t>> members_;
  std::vector<int32_t> work_;
  std::vector<uint8_t> is_pending_;
  std::vector<uint64_t> sum_;  // scratch, 0 between splitters
  std::vector<uint32_t> touched_;
  InterruptPoll poll_;
};

}  // namespace

std::vector<int32_t> refine(const std::vector<uint64_t>& colours, const Edges& edges) {
  return Refiner(colours, edges).run();
}

}  // namespace rostam::folding
