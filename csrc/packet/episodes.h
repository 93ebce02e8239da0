// Episodes: replays messages that meet as others have met before, instead of walking their packets (packets.skip).
//
// A message that starts on idle links begins an episode; whatever starts on links of it belongs to it, until all have
// arrived. Episodes that are equal but for names (shapes of routes, bytes, times of starts, what they share, the turns
// of their places) go the same way. One whose starts are all in the book (EpisodeBook) is not walked: its messages are
// sent and arrive when the book says, its links and places are left as they would be. When a start comes that the book
// does not have, its packets are walked from its beginning to now, on a clock of their own, and go on in the network;
// the book learns what follows. Replayed are so only whole pasts that were walked once: times are those of packets, to
// the picosecond, but for the order of things of one instant.
// Not replayed are messages that draw ways or go by load, episodes that join, those of more messages than kMost, and
// those that begin before word of all room is back where buffers could fill or load decides.
// Example: Episodes(queue, packets, client).start(transfer)
// Source: own, after Wormhole (NSDI 2026), which replays contention by rates; tests/packet/test_skip.py.
#pragma once

#include <cstdint>
#include <vector>

#include "packet/episode_book.h"
#include "packet/packet_network.h"
#include "packet/route_shapes.h"

namespace rostam::packet {

class Episodes : public network::NetworkClient {
 public:
  // All must outlive it.
  Episodes(EventQueue& queue, PacketNetwork& packets, network::NetworkClient& client);

  network::TransferId start(const network::Transfer& transfer);
  // The same message in the network, whose packets are walked from now on. REQUIRES: it is not delivered.
  network::TransferId walked(network::TransferId message);

  // Walks all that is under way.
  void walk_all();
  // The same, and replays nothing from now on: the network is going to change.
  void stop();

  void on_sent(uint64_t message) override { told(static_cast<uint32_t>(message), false); }
  void on_delivered(uint64_t message) override { told(static_cast<uint32_t>(message), true); }

  int64_t num_replayed() const { return num_replayed_; }    // messages
  int64_t skipped_bytes() const { return skipped_bytes_; }  // of what links carried, that was not walked

 private:
  static constexpr uint32_t kCrowd = 0;  // the episode of all that is not replayed

  struct Message {
    network::Transfer transfer;
    uint64_t order = 0;  // of starts
    int64_t start_ps = 0;
    uint32_t episode = kCrowd;
    uint32_t num_outputs = 0;                // of its episode's entry that came before it
    uint32_t num_links = 0, num_places = 0;  // of its episode that came before it
    network::TransferId inner = 0;
    bool is_walked = false, is_sent = false, is_delivered = false;
    bool is_counted = false;  // on its links
  };
  struct Episode {
    int64_t start_ps = 0;
    std::vector<uint32_t> messages;
    std::vector<uint32_t> links, places;  // in the order in which messages bring them
    std::vector<EpisodeBook::LinkChange> links_before;
    std::vector<uint32_t> turns_before;
    uint32_t entry = EpisodeBook::kBegin;
    uint32_t num_found = 0;    // messages whose starts the entry includes
    uint32_t next_output = 0;  // of the entry
    uint32_t num_left = 0;     // messages that have not arrived
    uint32_t version = 0;      // of what is expected
    int64_t bytes = 0;         // of its messages
    int64_t slack_bytes = 0;   // for which room may still be on its way back since before
    bool is_active = false, is_walked = false;
    bool is_due = false;  // its new messages are looked up later in this instant
  };
  struct Owner {
    uint32_t episode = kNone, place = 0;
    uint32_t num_users = 0;  // messages that have not arrived
    int64_t idle_at_ps = 0;  // word of all room behind it is back
  };
  class Events : public EventHandler {
   public:
    explicit Events(Episodes& owner) : owner_(owner) {}
    void on_event(uint64_t payload) override { owner_.on_event(payload); }

   private:
    Episodes& owner_;
  };
  enum class Kind : uint64_t { kLookUp, kOutput, kStart, kSent, kDelivered };

  int64_t now_ps() const { return queue_.now().ps(); }
  void on_event(uint64_t payload);
  void expect(uint32_t episode, Kind kind, int64_t at_ps, Priority priority);

  // Who belongs to what.
  uint32_t new_message(const network::Transfer& transfer);
  uint32_t new_episode();
  uint32_t episode_for(const RouteShapes::Facts& facts, int64_t bytes);
  std::vector<uint32_t> touched(const RouteShapes::Facts& facts) const;
  bool begin_together(const std::vector<uint32_t>& episodes) const;
  bool has_room(const RouteShapes::Facts& facts, int64_t bytes, int64_t& slack_bytes) const;
  void join(uint32_t episode, uint32_t message);
  void join_crowd(uint32_t message);
  uint32_t unite(const std::vector<uint32_t>& episodes);
  void to_crowd(uint32_t episode);
  void release(uint32_t episode);
  void let_go(uint32_t link);
  void leave(uint32_t message);

  // What the book says.
  EpisodeBook::Key key_of(const Episode& episode, uint32_t place);
  void look_up(uint32_t episode);
  void expect_next(uint32_t episode);
  void tell_next(uint32_t episode);
  void apply(const Episode& episode);

  // What it is told.
  void walk(uint32_t episode);
  void start_walked(uint32_t message);
  void enter(uint32_t episode);
  bool record(Episode& episode, const EpisodeBook::Output& output);
  void complete(const Episode& episode);
  void told(uint32_t message, bool is_delivery);
  void tell(uint32_t message, bool is_delivery);

  EventQueue& queue_;
  PacketNetwork& packets_;
  network::NetworkClient& client_;
  Events events_;
  RouteShapes shapes_;
  EpisodeBook book_;
  std::vector<Message> messages_;
  std::vector<Episode> episodes_;
  std::vector<uint32_t> free_messages_, free_episodes_;
  std::vector<Owner> link_owners_, place_owners_;
  uint64_t num_started_ = 0;
  int64_t num_replayed_ = 0, skipped_bytes_ = 0;
  bool is_in_past_ = false, is_stopped_ = false;
};

}  // namespace rostam::packet
