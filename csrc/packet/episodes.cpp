#include "packet/episodes.h"

#include <algorithm>
#include <cstring>

namespace rostam::packet {

namespace {

constexpr size_t kMostMessages = 512;       // of an episode
constexpr size_t kMostEntries = 1'000'000;  // of the book

}  // namespace

Episodes::Episodes(EventQueue& queue, PacketNetwork& packets, network::NetworkClient& client)
    : queue_(queue), packets_(packets), client_(client), events_(*this), shapes_(packets), episodes_(1) {}

void Episodes::on_event(uint64_t payload) {
  const auto id = static_cast<uint32_t>(payload);
  const auto kind = static_cast<Kind>(payload >> 60);
  if (kind == Kind::kStart) return start_walked(id);
  if (kind == Kind::kSent || kind == Kind::kDelivered) return tell(id, kind == Kind::kDelivered);
  const Episode& episode = episodes_[id];
  if (!episode.is_active || (episode.version & 0xFFFFFFFu) != (payload >> 32 & 0xFFFFFFFu)) return;
  if (kind == Kind::kLookUp) return look_up(id);
  tell_next(id);
}

// What was expected of the episode before is not any more.
void Episodes::expect(uint32_t id, Kind kind, int64_t at_ps, Priority priority) {
  const uint64_t version = ++episodes_[id].version & 0xFFFFFFFu;
  queue_.schedule(SimTime::from_ps(at_ps), priority, &events_, static_cast<uint64_t>(kind) << 60 | version << 32 | id);
}

uint32_t Episodes::new_message(const network::Transfer& transfer) {
  if (free_messages_.empty()) {
    free_messages_.push_back(static_cast<uint32_t>(messages_.size()));
    messages_.emplace_back();
  }
  const uint32_t id = free_messages_.back();
  free_messages_.pop_back();
  Message& message = messages_[id] = Message();
  message.transfer = transfer;
  message.order = num_started_++;
  message.start_ps = now_ps();
  return id;
}

uint32_t Episodes::new_episode() {
  if (free_episodes_.empty()) {
    free_episodes_.push_back(static_cast<uint32_t>(episodes_.size()));
    episodes_.emplace_back();
  }
  const uint32_t id = free_episodes_.back();
  free_episodes_.pop_back();
  const uint32_t version = episodes_[id].version;
  episodes_[id] = Episode();
  episodes_[id].version = version;
  episodes_[id].start_ps = now_ps();
  episodes_[id].is_active = true;
  return id;
}

network::TransferId Episodes::start(const network::Transfer& transfer) {
  const uint32_t id = new_message(transfer);
  const RouteShapes::Facts& facts = shapes_.of(transfer.route);
  if (!facts.is_whole) stop();
  if (is_stopped_ || transfer.bytes <= 0) {
    start_walked(id);
    return id;
  }
  const uint32_t episode = episode_for(facts, transfer.bytes);
  if (episode == kCrowd) {
    join_crowd(id);
    start_walked(id);
    return id;
  }
  join(episode, id);
  if (episodes_[episode].is_walked) {
    enter(episode);
    start_walked(id);
  } else if (!episodes_[episode].is_due) {
    episodes_[episode].is_due = true;
    expect(episode, Kind::kLookUp, now_ps(), Priority::kSolve);
  }
  return id;
}

// Those that its links belong to, each once.
std::vector<uint32_t> Episodes::touched(const RouteShapes::Facts& facts) const {
  std::vector<uint32_t> found;
  for (const uint32_t link : facts.links) {
    const uint32_t owner = link < link_owners_.size() ? link_owners_[link].episode : kNone;
    if (owner != kNone && std::find(found.begin(), found.end(), owner) == found.end()) found.push_back(owner);
  }
  return found;
}

// Whether they all began in this instant, and nothing of them has been looked up.
bool Episodes::begin_together(const std::vector<uint32_t>& episodes) const {
  size_t num_messages = 0;
  for (const uint32_t id : episodes) {
    const Episode& episode = episodes_[id];
    if (id == kCrowd || episode.is_walked || episode.num_found > 0 || episode.start_ps != now_ps()) return false;
    num_messages += episode.messages.size();
  }
  return num_messages < kMostMessages;
}

// Whether room that is not back yet on links of the route could change what messages of so many bytes do.
bool Episodes::has_room(const RouteShapes::Facts& facts, int64_t bytes, int64_t& slack_bytes) const {
  const network::PacketOptions& options = packets_.options();
  for (const uint32_t l : facts.links) {
    if (l >= link_owners_.size() || link_owners_[l].episode != kNone || link_owners_[l].idle_at_ps <= now_ps())
      continue;
    if (facts.is_adaptive) return false;
    const Link& link = packets_.links()[l];
    slack_bytes = std::max(slack_bytes, (2 * link.latency_ps / link.packet_ps + 2) * options.packet_bytes);
  }
  return slack_bytes == 0 || bytes + slack_bytes <= options.buffer_bytes / packets_.links().num_vcs();
}

// Where a message that starts now belongs.
uint32_t Episodes::episode_for(const RouteShapes::Facts& facts, int64_t bytes) {
  const std::vector<uint32_t> episodes = touched(facts);
  int64_t before = 0, slack_bytes = 0;
  size_t num_messages = 0;
  for (const uint32_t id : episodes) {
    before += episodes_[id].bytes;
    slack_bytes = std::max(slack_bytes, episodes_[id].slack_bytes);
    num_messages += episodes_[id].messages.size();
  }
  const bool may_join = episodes.size() < 2 ? episodes.empty() || episodes[0] != kCrowd : begin_together(episodes);
  if (facts.is_plain && may_join && num_messages < kMostMessages && book_.size() < kMostEntries &&
      has_room(facts, before + bytes, slack_bytes)) {
    const uint32_t id = episodes.empty() ? new_episode() : episodes.size() == 1 ? episodes[0] : unite(episodes);
    episodes_[id].slack_bytes = slack_bytes;
    return id;
  }
  for (const uint32_t id : episodes) {
    if (id != kCrowd) to_crowd(id);
  }
  return kCrowd;
}

// Takes its links and places, and what they are like before.
void Episodes::join(uint32_t id, uint32_t message_id) {
  Episode& episode = episodes_[id];
  Message& message = messages_[message_id];
  const RouteShapes::Facts& facts = shapes_.of(message.transfer.route);
  message.episode = id;
  message.num_links = static_cast<uint32_t>(episode.links.size());
  message.num_places = static_cast<uint32_t>(episode.places.size());
  message.num_outputs = episode.is_due ? 0 : episode.next_output;
  message.is_counted = true;
  for (const uint32_t l : facts.links) {
    if (link_owners_.size() <= l) link_owners_.resize(packets_.links().size());
    Owner& owner = link_owners_[l];
    ++owner.num_users;
    if (owner.episode == id) continue;
    owner.episode = id;
    owner.place = static_cast<uint32_t>(episode.links.size());
    episode.links.push_back(l);
    Link& link = packets_.links()[l];
    packets_.links().count(link);
    episode.links_before.push_back({link.bytes, link.busy_ps, link.next_vc});
  }
  for (const uint32_t n : facts.places) {
    if (place_owners_.size() <= n) place_owners_.resize(packets_.paths().num_nodes());
    Owner& owner = place_owners_[n];
    if (owner.episode == id) continue;
    owner.episode = id;
    owner.place = static_cast<uint32_t>(episode.places.size());
    episode.places.push_back(n);
    episode.turns_before.push_back(packets_.paths().node(n).turn);
  }
  episode.messages.push_back(message_id);
  episode.bytes += message.transfer.bytes;
  ++episode.num_left;
}

void Episodes::join_crowd(uint32_t message_id) {
  Message& message = messages_[message_id];
  message.episode = kCrowd;
  message.is_counted = true;
  for (const uint32_t l : shapes_.of(message.transfer.route).links) {
    if (link_owners_.size() <= l) link_owners_.resize(packets_.links().size());
    link_owners_[l].episode = kCrowd;
    ++link_owners_[l].num_users;
  }
}

// One episode of those that begin_together().
uint32_t Episodes::unite(const std::vector<uint32_t>& episodes) {
  std::vector<uint32_t> all;
  for (const uint32_t id : episodes) {
    all.insert(all.end(), episodes_[id].messages.begin(), episodes_[id].messages.end());
    for (const uint32_t l : episodes_[id].links) link_owners_[l] = {kNone, 0, 0, link_owners_[l].idle_at_ps};
    for (const uint32_t n : episodes_[id].places) place_owners_[n].episode = kNone;
    ++episodes_[id].version;
    episodes_[id].is_active = false;
    free_episodes_.push_back(id);
  }
  std::sort(all.begin(), all.end(), [this](uint32_t a, uint32_t b) { return messages_[a].order < messages_[b].order; });
  const uint32_t made = new_episode();
  for (const uint32_t message : all) join(made, message);
  return made;
}

// A link that nothing uses any more.
void Episodes::let_go(uint32_t link) {
  link_owners_[link] = {kNone, 0, 0, now_ps() + packets_.links()[link].latency_ps};
}

// Its messages go on as packets among all others.
void Episodes::to_crowd(uint32_t id) {
  if (!episodes_[id].is_walked) walk(id);
  Episode& episode = episodes_[id];
  for (const uint32_t message : episode.messages) {
    messages_[message].episode = kCrowd;
    if (!messages_[message].is_delivered) continue;
    leave(message);
    free_messages_.push_back(message);
  }
  for (const uint32_t l : episode.links) {
    if (link_owners_[l].episode == id) link_owners_[l].episode = kCrowd;
  }
  for (const uint32_t n : episode.places) place_owners_[n].episode = kNone;
  ++episode.version;
  episode.is_active = false;
  free_episodes_.push_back(id);
}

// Its links, those that no other message uses are idle.
void Episodes::leave(uint32_t message) {
  if (is_stopped_ || !messages_[message].is_counted) return;
  for (const uint32_t l : shapes_.of(messages_[message].transfer.route).links) {
    if (--link_owners_[l].num_users == 0) let_go(l);
  }
}

// All of its messages have arrived.
void Episodes::release(uint32_t id) {
  Episode& episode = episodes_[id];
  for (const uint32_t l : episode.links) let_go(l);
  for (const uint32_t n : episode.places) place_owners_[n].episode = kNone;
  free_messages_.insert(free_messages_.end(), episode.messages.begin(), episode.messages.end());
  ++episode.version;
  episode.is_active = false;
  free_episodes_.push_back(id);
}

// All that tells a start from others after the same past: when it is, the message, what of its route the episode has
// already, and the state of what it brings.
EpisodeBook::Key Episodes::key_of(const Episode& episode, uint32_t place) {
  const Message& message = messages_[episode.messages[place]];
  const network::Transfer& transfer = message.transfer;
  const RouteShapes::Facts& facts = shapes_.of(transfer.route);
  int64_t cap_bits;
  std::memcpy(&cap_bits, &transfer.rate_cap, sizeof cap_bits);
  EpisodeBook::Key key{message.start_ps - episode.start_ps, message.num_outputs, facts.shape, transfer.bytes, cap_bits,
                       transfer.extra_latency.ps()};
  const uint32_t num_vcs = packets_.links().num_vcs();
  for (size_t k = 0; k < facts.links.size(); ++k) {
    const uint32_t known = link_owners_[facts.links[k]].place;
    const bool is_new = known >= message.num_links;
    const uint32_t turn = is_new && num_vcs > 1 ? packets_.links()[facts.links[k]].next_vc % num_vcs : 0;
    if (!is_new || turn != 0) key.insert(key.end(), {static_cast<int64_t>(k), is_new ? -1 : known, turn});
  }
  key.push_back(-1);
  for (const uint32_t n : facts.places) {
    const uint32_t known = place_owners_[n].place;
    const PathNode& node = packets_.paths().node(n);
    key.push_back(known < message.num_places ? -1 - static_cast<int64_t>(known) : node.turn % node.num_hops);
  }
  return key;
}

// Finds what the book has of its new messages.
void Episodes::look_up(uint32_t id) {
  Episode& episode = episodes_[id];
  episode.is_due = false;
  for (; episode.num_found < episode.messages.size(); ++episode.num_found) {
    const uint32_t next = book_.next(episode.entry, key_of(episode, episode.num_found));
    if (next == EpisodeBook::kNoEntry) return walk(id);
    episode.entry = next;
    episode.next_output = 0;
  }
  expect_next(id);
}

void Episodes::expect_next(uint32_t id) {
  const Episode& episode = episodes_[id];
  const EpisodeBook::Entry& entry = book_[episode.entry];
  const bool is_known = episode.next_output < entry.outputs.size();
  const int64_t at_ps = episode.start_ps + (is_known ? entry.outputs[episode.next_output].at_ps : entry.known_until_ps);
  if (!is_known && at_ps <= now_ps()) return walk(id);
  expect(id, Kind::kOutput, at_ps, Priority::kNormal);
}

// What the book expects now; the end of what it knows.
void Episodes::tell_next(uint32_t id) {
  Episode& episode = episodes_[id];
  const EpisodeBook::Entry& entry = book_[episode.entry];
  if (episode.next_output == entry.outputs.size()) return walk(id);
  const EpisodeBook::Output output = entry.outputs[episode.next_output];
  if (episode.start_ps + output.at_ps > now_ps()) return expect_next(id);  // another has written it meanwhile
  ++episode.next_output;
  const uint32_t message = episode.messages[output.message];
  const uint64_t token = messages_[message].transfer.token;
  (output.is_delivery ? messages_[message].is_delivered : messages_[message].is_sent) = true;
  if (output.is_delivery && --episode.num_left == 0) {
    apply(episode);
    release(id);
  } else {
    expect_next(id);
  }
  output.is_delivery ? client_.on_delivered(token) : client_.on_sent(token);
}

// Leaves links and places as walking would have.
void Episodes::apply(const Episode& episode) {
  const EpisodeBook::Entry& entry = book_[episode.entry];
  for (size_t k = 0; k < episode.links.size(); ++k) {
    const EpisodeBook::LinkChange& change = entry.links[k];
    packets_.links().add_carried(episode.links[k], change.bytes, change.busy_ps);
    packets_.links()[episode.links[k]].next_vc = change.next_vc;
    skipped_bytes_ += change.bytes;
  }
  for (size_t k = 0; k < episode.places.size(); ++k) {
    packets_.paths().node(episode.places[k]).turn += entry.turns[k];
  }
  num_replayed_ += static_cast<int64_t>(episode.messages.size());
}

}  // namespace rostam::packet
