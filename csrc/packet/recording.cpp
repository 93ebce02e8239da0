// How Episodes walk what the book does not have, from its beginning to now, and what they write into it.
#include <algorithm>
#include <utility>

#include "packet/episodes.h"

namespace rostam::packet {

void Episodes::start_walked(uint32_t id) {
  Message& message = messages_[id];
  message.is_walked = true;
  network::Transfer transfer = message.transfer;
  transfer.token = id;
  message.inner = packets_.start(transfer);
}

// Walks its packets up to now on a clock of their own; what they have before them goes on on that of all. Things of
// this very instant come then.
void Episodes::walk(uint32_t id) {
  Episode& episode = episodes_[id];
  ++episode.version;
  episode.is_walked = true;
  episode.is_due = false;
  EventQueue past;
  packets_.use(past);
  is_in_past_ = true;
  const auto run_to = [&past](SimTime time) {
    while (!past.is_empty() && past.next_time() < time) past.run_next();
  };
  for (const uint32_t message : episode.messages) {
    const SimTime start = SimTime::from_ps(messages_[message].start_ps);
    if (start == queue_.now()) break;
    run_to(start);
    past.schedule(start, Priority::kNormal, &events_, static_cast<uint64_t>(Kind::kStart) << 60 | message);
  }
  run_to(queue_.now());
  is_in_past_ = false;
  packets_.use(queue_);
  past.move_to(queue_);
  for (size_t k = 0; k < episode.messages.size(); ++k) {
    if (k >= episode.num_found) enter(id);
    if (messages_[episode.messages[k]].start_ps == now_ps()) start_walked(episode.messages[k]);
  }
}

// The next of its messages, of which the book may not know, starts.
void Episodes::enter(uint32_t id) {
  Episode& episode = episodes_[id];
  const uint32_t place = episode.num_found++;
  EpisodeBook::Key key = key_of(episode, place);
  const int64_t at_ps = key.front();
  uint32_t next = book_.next(episode.entry, key);
  if (next == EpisodeBook::kNoEntry) next = book_.add(episode.entry, std::move(key));
  EpisodeBook::Entry& before = book_[episode.entry];
  before.known_until_ps = std::max(before.known_until_ps, at_ps);
  EpisodeBook::Entry& entry = book_[next];
  entry.known_until_ps = std::max(entry.known_until_ps, at_ps);
  episode.entry = next;
  episode.next_output = 0;
}

// Whether it is what the book has, or the book has it now.
bool Episodes::record(Episode& episode, const EpisodeBook::Output& output) {
  EpisodeBook::Entry& entry = book_[episode.entry];
  const uint32_t place = episode.next_output++;
  if (place < entry.outputs.size()) return entry.outputs[place] == output;
  if (output.at_ps < entry.known_until_ps) return false;
  entry.outputs.push_back(output);
  return true;
}

// The book knows the episode to its end.
void Episodes::complete(const Episode& episode) {
  EpisodeBook::Entry& entry = book_[episode.entry];
  if (entry.known_until_ps == kNever) return;
  entry.known_until_ps = kNever;
  for (size_t k = 0; k < episode.links.size(); ++k) {
    Link& link = packets_.links()[episode.links[k]];
    packets_.links().count(link);
    const EpisodeBook::LinkChange& before = episode.links_before[k];
    entry.links.push_back({link.bytes - before.bytes, link.busy_ps - before.busy_ps, link.next_vc});
  }
  for (size_t k = 0; k < episode.places.size(); ++k) {
    entry.turns.push_back(packets_.paths().node(episode.places[k]).turn - episode.turns_before[k]);
  }
}

// The network says so; of the past the book has said it already. (Things of one instant may have come in another order
// in the past: what differs so is told now.)
void Episodes::told(uint32_t id, bool is_delivery) {
  Message& message = messages_[id];
  if (is_delivery ? message.is_delivered : message.is_sent) return;
  if (!is_in_past_) return tell(id, is_delivery);
  const auto kind = static_cast<uint64_t>(is_delivery ? Kind::kDelivered : Kind::kSent);
  queue_.schedule(queue_.now(), Priority::kNormal, &events_, kind << 60 | id);
}

void Episodes::tell(uint32_t id, bool is_delivery) {
  Message& message = messages_[id];
  const uint64_t token = message.transfer.token;
  (is_delivery ? message.is_delivered : message.is_sent) = true;
  if (message.episode != kCrowd) {
    Episode& episode = episodes_[message.episode];
    const auto place = std::find(episode.messages.begin(), episode.messages.end(), id) - episode.messages.begin();
    if (!record(episode, {now_ps() - episode.start_ps, static_cast<uint32_t>(place), is_delivery})) {
      to_crowd(message.episode);
    } else if (is_delivery && --episode.num_left == 0) {
      complete(episode);
      release(message.episode);
    }
  } else if (is_delivery) {
    leave(id);
    free_messages_.push_back(id);
  }
  is_delivery ? client_.on_delivered(token) : client_.on_sent(token);
}

void Episodes::walk_all() {
  for (uint32_t id = kCrowd + 1; id < episodes_.size(); ++id) {
    if (episodes_[id].is_active && !episodes_[id].is_walked) walk(id);
  }
}

void Episodes::stop() {
  if (is_stopped_) return;
  for (uint32_t id = kCrowd + 1; id < episodes_.size(); ++id) {
    if (episodes_[id].is_active) to_crowd(id);
  }
  is_stopped_ = true;
}

network::TransferId Episodes::walked(network::TransferId id) {
  if (!messages_[id].is_walked) walk(messages_[id].episode);
  return messages_[id].inner;
}

}  // namespace rostam::packet
