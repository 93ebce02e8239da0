// EpisodeBook: what happened in episodes. An episode begins with a message on idle links and lasts until it, and all
// that came onto links of the episode meanwhile, have arrived. The book is a tree: an entry for each start of a
// message, by all that tells it from others after the same past; in it what followed, until the next start or the end.
// Example: book.next(EpisodeBook::kBegin, key) is kNoEntry: nothing like it has been seen.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "packet/links.h"

namespace rostam::packet {

class EpisodeBook {
 public:
  using Key = std::vector<int64_t>;
  static constexpr uint32_t kBegin = 0;  // the entry before all episodes
  static constexpr uint32_t kNoEntry = kNone;

  struct Output {
    int64_t at_ps = 0;     // since the episode began
    uint32_t message = 0;  // in the order of their starts
    bool is_delivery = false;
    bool operator==(const Output& other) const {
      return at_ps == other.at_ps && message == other.message && is_delivery == other.is_delivery;
    }
  };
  // What is left behind by an episode that is over.
  struct LinkChange {
    int64_t bytes = 0, busy_ps = 0;
    uint32_t next_vc = 0;
  };
  struct Entry {
    std::map<Key, uint32_t> next;
    std::vector<Output> outputs;
    int64_t known_until_ps = 0;  // since the episode began: all outputs before are there; kNever: to the end
    std::vector<LinkChange> links;
    std::vector<uint32_t> turns;  // that places have gone on
  };

  EpisodeBook() : entries_(1) {}

  Entry& operator[](uint32_t entry) { return entries_[entry]; }
  uint32_t next(uint32_t entry, const Key& key) const {
    const auto found = entries_[entry].next.find(key);
    return found == entries_[entry].next.end() ? kNoEntry : found->second;
  }
  // Adds the entry of a start. Returns it.
  uint32_t add(uint32_t entry, Key key) {
    const auto made = static_cast<uint32_t>(entries_.size());
    entries_[entry].next.emplace(std::move(key), made);
    entries_.emplace_back();
    return made;
  }
  size_t size() const { return entries_.size(); }

 private:
  std::vector<Entry> entries_;
};

}  // namespace rostam::packet
