#include "packet/links.h"

#include <algorithm>

namespace rostam::packet {

Links::Links(const network::LinkTable& table, const network::PacketOptions& options)
    : options_(options),
      num_needed_(static_cast<uint32_t>(table.num_virtual_channels())),
      num_vcs_(options.num_vcs > 0 ? static_cast<uint32_t>(options.num_vcs) : num_needed_),
      names_(table.names()) {
  const bool is_idle = options.spare_vcs == network::SpareChannels::kIdle || table.may_take_more_channels();
  if (options.num_vcs == 1 || is_idle) num_needed_ = num_vcs_;
  links_.reserve(static_cast<size_t>(table.size()));
  for (int32_t l = 0; l < table.size(); ++l) add(table[l]);
}

void Links::add(const network::EngineLink& link) {
  Link one;
  one.src = link.src;
  one.dst = link.dst;
  one.latency_ps = link.latency.ps();
  one.own_forward_ps = link.forward_latency.ps();
  const bool is_given = options_.buffer_latency != SimTime::never();
  one.forward_ps = is_given ? options_.buffer_latency.ps() : one.own_forward_ps;
  one.is_exit = link.is_exit;
  links_.push_back(one);
  numbers_.resize(links_.size() * num_needed_, -1);
  outputs_.push_back(++num_outputs_[link.src]);
  set_rate(static_cast<uint32_t>(links_.size() - 1), link.bytes_per_s);
}

void Links::set_rate(uint32_t index, double bytes_per_s) {
  Link& link = links_[index];
  count(link);
  link.bytes_per_s = bytes_per_s;
  link.packet_ps = 0;
  if (bytes_per_s <= 0) return;
  const double packet_ps = rostam::transmit_ps(static_cast<double>(options_.packet_bytes), bytes_per_s);
  link.packet_ps = packet_ps < kMaxPs ? static_cast<int64_t>(packet_ps) : kNever;
  if (link.packet_ps == kNever) return;  // who takes it is told
  const int64_t head = std::min(options_.flit_bytes, options_.packet_bytes);
  link.head_ps = transmit_time(static_cast<double>(head), bytes_per_s).ps();
}

uint32_t Links::channel_of(uint32_t link, int32_t number, int32_t dst, uint32_t output) {
  const uint32_t first = link * num_vcs_;
  if (options_.num_vcs == 1 || links_[link].is_exit) return first;
  for (uint32_t k = 0; k < num_needed_; ++k) {
    int32_t& known = numbers_[link * num_needed_ + k];
    if (known < 0) known = number;
    if (known != number) continue;
    const uint32_t num_alike = (num_vcs_ - k - 1) / num_needed_ + 1;
    if (num_alike == 1) return first + k;
    const bool is_by_output = options_.spare_vcs == network::SpareChannels::kOutput;
    const uint32_t name = !is_by_output ? static_cast<uint32_t>(dst) : output == kNone ? 0 : outputs_[output];
    return first + k + num_needed_ * (name % num_alike);
  }
  ROSTAM_THROW(ConfigError, "links have " << num_needed_ << " virtual channels, but paths over that from "
                                          << names_(links_[link].src) << " to " << names_(links_[link].dst)
                                          << " take more after failures than before; set packets.num_vcs to more, or "
                                             "to 1 for all");
}

}  // namespace rostam::packet
