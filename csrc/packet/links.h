// Links: the links of a system as packets see them, and the virtual channels of each. Channel v of link l is
// l x num_vcs + v; a routing's own numbers of channels (routing::Steps::Hop::channel, phases of a turn model) get the
// channels of a link in the order in which paths name them first. Of more channels than routings need, those that are
// numbered alike take turns by output or destination (network::SpareChannels).
// Example: links.channel_of(3, 5); links[3].packet_ps
#pragma once

#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

#include "network/network.h"

namespace rostam::packet {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// Two lines of memory, of which packets that go over the link look at the first; what they do not change follows.
struct alignas(64) Link {
  int64_t free_at_ps = 0;     // the tail of what it carries has left
  int64_t wake_ps = kNever;   // when it is looked at again
  int64_t packet_ps = 0;      // for a whole packet; 0: it does not work
  int64_t head_ps = 0;        // for as much of it as the next switch waits for
  int64_t latency_ps = 0;     // along it
  int64_t forward_ps = 0;     // through the vertex behind it
  int64_t waiting_bytes = 0;  // at its near end, of those that are in line
  uint32_t num_waiting = 0;   // packets and messages in line
  uint32_t num_whole = 0;     // whole packets that it carried since `bytes` and `busy_ps` were counted
  int64_t bytes = 0;          // that it carried, packets as a whole from their start; but for num_whole
  int64_t busy_ps = 0;        // the same
  double bytes_per_s = 0;
  int64_t own_forward_ps = 0;  // as the fabric has it
  int32_t src = -1, dst = -1;
  uint32_t next_vc = 0;  // whose turn it is
  bool is_exit = false;  // packets on it are at their end
  bool is_removed = false;
  bool had_claim = false;  // of both claims and others the former were looked at first

  bool works() const { return packet_ps > 0; }
};

class Links {
 public:
  Links(const network::LinkTable& table, const network::PacketOptions& options);

  size_t size() const { return links_.size(); }
  Link& operator[](uint32_t link) { return links_[link]; }
  const Link& operator[](uint32_t link) const { return links_[link]; }
  uint32_t num_vcs() const { return num_vcs_; }
  uint32_t num_needed() const { return num_needed_; }  // by the routing
  uint32_t num_channels() const { return static_cast<uint32_t>(links_.size()) * num_vcs_; }
  uint32_t link_of(uint32_t channel) const { return num_vcs_ == 1 ? channel : channel / num_vcs_; }
  const network::VertexNames& names() const { return names_; }

  // The channel of a link that a routing calls `number`, of packets to vertex `dst` that go on over link `output`,
  // kNone for those at their end. Throws: ConfigError where its links need more channels than there are.
  uint32_t channel_of(uint32_t link, int32_t number, int32_t dst, uint32_t output);

  void add(const network::EngineLink& link);
  // From now on [bytes/s], >= 0.
  void set_rate(uint32_t link, double bytes_per_s);
  // Counts the whole packets that links have carried.
  void count(Link& link) const {
    link.bytes += link.num_whole * options_.packet_bytes;
    link.busy_ps += link.num_whole * link.packet_ps;
    link.num_whole = 0;
  }
  // A packet that takes so long starts on a link.
  void carry(Link& link, int64_t bytes, int64_t duration_ps) const {
    if (duration_ps == link.packet_ps && bytes == options_.packet_bytes) {
      if (++link.num_whole == kNone) count(link);
      return;
    }
    link.bytes += bytes;
    link.busy_ps += duration_ps;
  }
  // Adds what was not walked.
  void add_carried(uint32_t link, int64_t bytes, int64_t busy_ps) {
    links_[link].bytes += bytes;
    links_[link].busy_ps += busy_ps;
  }
  // How long a link takes to send so many bytes [ps]. REQUIRES: it sends at all.
  int64_t transmit_ps(const Link& link, int64_t bytes) const {
    const bool is_known = bytes == options_.packet_bytes && link.packet_ps < kNever;
    return is_known ? link.packet_ps : transmit_time(static_cast<double>(bytes), link.bytes_per_s).ps();
  }
  int64_t head_ps(const Link& link, int64_t bytes) const {
    return bytes >= options_.flit_bytes ? link.head_ps : transmit_ps(link, bytes);
  }

 private:
  network::PacketOptions options_;
  uint32_t num_needed_, num_vcs_;
  network::VertexNames names_;
  std::vector<Link> links_;
  std::vector<int32_t> numbers_;   // of the first num_needed_ channels of each link; -1: not named yet
  std::vector<uint32_t> outputs_;  // of each link: which one of its vertex, counted from 1
  std::unordered_map<int32_t, uint32_t> num_outputs_;
};

}  // namespace rostam::packet
