#include "packet/wait_lines.h"

#include <algorithm>

#include "sim/random.h"

namespace rostam::packet {

namespace {

constexpr uint32_t kMany = 12;  // lines of a channel from which on they are found by the table, until it has none

}  // namespace

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
  const uint32_t known = find(channel, port);
  if (known != kNone) {
    Line& line = lines_[known];
    next[line.last] = id;
    before[id] = line.last;
    line.last = id;
    return;
  }
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(lines_.size()));
    lines_.emplace_back();
  }
  const uint32_t made = free_.back();
  free_.pop_back();
  lines_[made] = {id, id, made, port};
  add_line(channel, made);
}

uint32_t WaitLines::find(uint32_t channel, uint32_t port) const {
  const Ring& ring = rings_[channel];
  if (ring.is_indexed) return table_[place_of(key_of(channel, port))].line;
  uint32_t line = ring.last;
  for (uint32_t k = 0; k < ring.num_lines; ++k) {
    if (lines_[line].port == port) return line;
    line = lines_[line].next;
  }
  return kNone;
}

// The last one to go.
void WaitLines::add_line(uint32_t channel, uint32_t line) {
  Ring& ring = rings_[channel];
  if (ring.last != kNone) {
    lines_[line].next = lines_[ring.last].next;
    lines_[ring.last].next = line;
  }
  ring.last = line;
  ++ring.num_lines;
  if (ring.is_indexed) {
    insert(key_of(channel, lines_[line].port), line);
  } else if (ring.num_lines >= kMany) {
    index(channel);
  }
}

void WaitLines::index(uint32_t channel) {
  Ring& ring = rings_[channel];
  ring.is_indexed = 1;
  uint32_t line = ring.last;
  do {
    insert(key_of(channel, lines_[line].port), line);
    line = lines_[line].next;
  } while (line != ring.last);
}

void WaitLines::insert(uint64_t key, uint32_t line) {
  if (2 * ++num_indexed_ > table_.size()) grow(2 * table_.size());
  table_[place_of(key)] = {key, line};
}

// Of the line behind `before`, whose turn is over.
WaitLines::Item WaitLines::take_first(uint32_t channel, uint32_t before) {
  const uint32_t taken = lines_[before].next;
  Line& line = lines_[taken];
  const Item item{line.port, line.first};
  line.first = next_of(line.port)[item.id];
  if (line.first == kNone) {
    unlink(channel, before);
    if (rings_[channel].last != kNone) rings_[channel].last = before;
  } else {
    rings_[channel].last = taken;
  }
  return item;
}

// Takes the empty line behind `before` out of the ring.
void WaitLines::unlink(uint32_t channel, uint32_t before) {
  const uint32_t gone = lines_[before].next;
  Ring& ring = rings_[channel];
  lines_[before].next = lines_[gone].next;
  if (ring.last == gone) ring.last = before == gone ? kNone : before;
  if (ring.is_indexed) {
    erase(key_of(channel, lines_[gone].port));
    --num_indexed_;
  }
  if (--ring.num_lines == 0) ring.is_indexed = 0;
  free_.push_back(gone);
}

void WaitLines::remove(uint32_t channel, uint32_t port, uint32_t id) {
  const uint32_t line = find(channel, port);
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
  uint32_t line = rings_[channel].last;
  do {
    line = lines_[line].next;
    const std::vector<uint32_t>& next = next_of(lines_[line].port);
    for (uint32_t id = lines_[line].first; id != kNone; id = next[id]) found.push_back({lines_[line].port, id});
  } while (line != rings_[channel].last);
  return found;
}

}  // namespace rostam::packet
