#include "packet/skipping_network.h"

#include <numeric>
#include <sstream>

namespace rostam::packet {

using network::TransferId;

void SkippingNetwork::set_packets(const network::PacketOptions& options) {
  packets_.set_packets(options);
  episodes_ = options.enable_skip ? std::make_unique<Episodes>(queue_, packets_, client_) : nullptr;
}

TransferId SkippingNetwork::start(const network::Transfer& transfer) {
  return episodes_ == nullptr ? packets_.start(transfer) : episodes_->start(transfer);
}

void SkippingNetwork::cancel(TransferId message) {
  stop();
  packets_.cancel(walked(message));
}

void SkippingNetwork::set_route(TransferId message, network::RouteId route) {
  stop();
  packets_.set_route(walked(message), route);
}

void SkippingNetwork::set_capacity(int32_t link, double bytes_per_s) {
  stop();
  packets_.set_capacity(link, bytes_per_s);
}

int32_t SkippingNetwork::add_links(const std::vector<network::EngineLink>& links) {
  stop();
  return packets_.add_links(links);
}

void SkippingNetwork::remove_links(const std::vector<int32_t>& links) {
  stop();
  packets_.remove_links(links);
}

double SkippingNetwork::backlog(int32_t src, int32_t dst) const {
  walk_all();
  return packets_.backlog(src, dst);
}

double SkippingNetwork::bytes_waiting(int32_t link) const {
  walk_all();
  return packets_.bytes_waiting(link);
}

network::NetworkStats SkippingNetwork::stats() const {
  walk_all();
  return packets_.stats();
}

std::string SkippingNetwork::note() const {
  std::string note = packets_.note();
  if (episodes_ == nullptr) return note;
  const std::vector<double> bytes = packets_.stats().link_bytes;
  const double all = std::accumulate(bytes.begin(), bytes.end(), 0.0);
  const double walked = all - static_cast<double>(episodes_->skipped_bytes());
  std::ostringstream text;
  text << note << (note.empty() ? "" : "; ") << "packets.skip: " << episodes_->num_replayed()
       << " messages went as others had before; " << (all > 0 ? 100 * walked / all : 0)
       << "% of the bytes over links were walked as packets";
  return text.str();
}

}  // namespace rostam::packet
