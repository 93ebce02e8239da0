// WaitLines: what waits for virtual channels. Every channel has a line for each input port (a link into its vertex, or
// the messages that begin there), and the lines take turns: packets that came in over one port never hold up those of
// another (virtual output queues). Lines exist while something is in them. Few lines of a channel are found by looking
// at each, many by a table. Example: lines.push(channel, port, packet); lines.take(channel, [](uint32_t port, uint32_t
// item) { return true; })
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "packet/links.h"

namespace rostam::packet {

class WaitLines {
 public:
  static constexpr uint32_t kMessages = kNone;  // the port of messages, whose items are messages and not packets

  struct Item {
    uint32_t port = kNone, id = kNone;
  };

  WaitLines() { grow(64); }

  void resize(size_t num_channels) { rings_.resize(num_channels); }

  bool is_empty(uint32_t channel) const { return rings_[channel].last == kNone; }

  // Asks for the memory of a channel.
  void fetch(uint32_t channel) const { __builtin_prefetch(&rings_[channel], 1); }

  // At the end of the port's line.
  void push(uint32_t channel, uint32_t port, uint32_t id);

  // Takes the first of the next line whose first may go; nothing may: an item with id kNone.
  template <typename MayGo>
  Item take(uint32_t channel, const MayGo& may_go) {
    const uint32_t last = rings_[channel].last;
    uint32_t before = last;
    do {
      const uint32_t line = lines_[before].next;
      if (may_go(lines_[line].port, lines_[line].first)) return take_first(channel, before);
      before = line;
    } while (before != last);
    return {};
  }

  // Takes out one item wherever it is in its line. REQUIRES: it is there. Cost: O(lines of the channel) if it is the
  // only one of its line, else O(1).
  void remove(uint32_t channel, uint32_t port, uint32_t id);

  // Everything that waits for a channel, line by line.
  std::vector<Item> items(uint32_t channel) const;

 private:
  struct Line {
    uint32_t first = kNone, last = kNone;  // items
    uint32_t next = kNone;                 // line of the channel; they form a ring
    uint32_t port = kNone;
  };
  // The lines of a channel, which take turns.
  struct Ring {
    uint32_t last = kNone;  // its next is the next one to go
    uint32_t num_lines : 31, is_indexed : 1;
    Ring() : num_lines(0), is_indexed(0) {}
  };
  struct Place {
    uint64_t key;
    uint32_t line;
  };
  static uint64_t key_of(uint32_t channel, uint32_t port) { return static_cast<uint64_t>(channel) << 32 | port; }
  std::vector<uint32_t>& next_of(uint32_t port) { return port == kMessages ? next_message_ : next_packet_; }
  const std::vector<uint32_t>& next_of(uint32_t port) const { return port == kMessages ? next_message_ : next_packet_; }
  std::vector<uint32_t>& before_of(uint32_t port) { return port == kMessages ? before_message_ : before_packet_; }
  Item take_first(uint32_t channel, uint32_t before);
  void unlink(uint32_t channel, uint32_t before);
  uint32_t find(uint32_t channel, uint32_t port) const;  // kNone: there is none
  size_t place_of(uint64_t key) const;                   // of the line, or where it would be
  void add_line(uint32_t channel, uint32_t line);
  void index(uint32_t channel);
  void insert(uint64_t key, uint32_t line);
  void erase(uint64_t key);
  void grow(size_t size);

  std::vector<Ring> rings_;  // of each channel
  std::vector<Line> lines_;
  std::vector<uint32_t> free_;
  std::vector<uint32_t> next_packet_, next_message_;      // behind each item of a line
  std::vector<uint32_t> before_packet_, before_message_;  // before it, unless it is the first
  std::vector<Place> table_;                              // of lines of large rings; a power of two of places
  size_t num_indexed_ = 0;
};

}  // namespace rostam::packet
