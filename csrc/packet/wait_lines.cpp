#include "packet/wait_lines.h"

#include <algorithm>

#include "sim/random.h"

namespace rostam::packet {

size_t WaitLines::place_of(uint64_t key) const {
  size_t place = mix(key) & (table_.size() - 1);
  while (table_[place].line != kNone && table_[place].key != key) place = (place + 1) & (table_.size() - 1);
  return place;
}

void WaitLines::grow(size_t size) {
  std::vector<Place> before(size, Place{0, kNone});
  before.swap(table_);
  for (const Place& one : before) {
    if (one.line != kNone) table_[place_of(one.key)] = one;
  }
}

// Moves those behind it up, so that searches never end too soon.
void WaitLines::erase(uint64_t key) {
  const size_t mask = table_.size() - 1;
  size_t hole = place_of(key);
  for (size_t place = (hole + 1) & mask; table_[place].line != kNone; place = (place + 1) & mask) {
    const size_t wanted = mix(table_[place].key) & mask;
    if (((place - wanted) & mask) < ((place - hole) & mask)) continue;
    table_[hole] = table_[place];
    hole = place;
  }
  table_[hole].line = kNone;
}

void WaitLines::push(uint32_t channel, uint32_t port, uint32_t id) {
  std::vector<uint32_t>& next = next_of(port);
  std::vector<uint32_t>& before = before_of(port);
  if (next.size() <= id) {
    next.resize(std::max<size_t>(id + size_t{1}, 2 * next.size()), kNone);
    before.resize(next.size(), kNone);
  }
  next[id] = kNone;
  const uint64_t key = key_of(channel, port);
  const Place& known = table_[place_of(key)];
  if (known.line != kNone) {
    Line& line = lines_[known.line];
    next[line.last] = id;
    before[id] = line.last;
    line.last = id;
    return;
  }
  if (2 * ++num_lines_ > table_.size()) grow(2 * table_.size());
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(lines_.size()));
    lines_.emplace_back();
  }
  const uint32_t made = free_.back();
  free_.pop_back();
  table_[place_of(key)] = {key, made};
  uint32_t& last = last_line_[channel];
  lines_[made] = {id, id, last == kNone ? made : lines_[last].next, port};
  if (last != kNone) lines_[last].next = made;
  last = made;
}

// Of the line behind `before`, whose turn is over.
WaitLines::Item WaitLines::take_first(uint32_t channel, uint32_t before) {
  const uint32_t taken = lines_[before].next;
  Line& line = lines_[taken];
  const Item item{line.port, line.first};
  line.first = next_of(line.port)[item.id];
  if (line.first == kNone) {
    unlink(channel, before);
    if (last_line_[channel] != kNone) last_line_[channel] = before;
  } else {
    last_line_[channel] = taken;
  }
  return item;
}

// Takes the empty line behind `before` out of the ring.
void WaitLines::unlink(uint32_t channel, uint32_t before) {
  const uint32_t gone = lines_[before].next;
  lines_[before].next = lines_[gone].next;
  if (last_line_[channel] == gone) last_line_[channel] = before == gone ? kNone : before;
  erase(key_of(channel, lines_[gone].port));
  free_.push_back(gone);
  --num_lines_;
}

void WaitLines::remove(uint32_t channel, uint32_t port, uint32_t id) {
  const uint32_t line = table_[place_of(key_of(channel, port))].line;
  std::vector<uint32_t>&next = next_of(port), &before = before_of(port);
  const bool is_first = lines_[line].first == id, is_last = lines_[line].last == id;
  if (is_first) {
    lines_[line].first = next[id];
  } else {
    next[before[id]] = next[id];
  }
  if (is_last) {
    lines_[line].last = before[id];
  } else {
    before[next[id]] = before[id];
  }
  if (lines_[line].first != kNone) return;
  uint32_t neighbour = line;
  while (lines_[neighbour].next != line) neighbour = lines_[neighbour].next;
  unlink(channel, neighbour);
}

std::vector<WaitLines::Item> WaitLines::items(uint32_t channel) const {
  std::vector<Item> found;
  if (is_empty(channel)) return found;
  uint32_t line = last_line_[channel];
  do {
    line = lines_[line].next;
    const std::vector<uint32_t>& next = next_of(lines_[line].port);
    for (uint32_t id = lines_[line].first; id != kNone; id = next[id]) found.push_back({lines_[line].port, id});
  } while (line != last_line_[channel]);
  return found;
}

}  // namespace rostam::packet
