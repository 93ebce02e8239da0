#include "packet/claims.h"

#include <algorithm>

namespace rostam::packet {

void Claims::stand(uint32_t packet, uint32_t hop, uint32_t channel, uint32_t port) {
  if (first_.size() <= packet) first_.resize(std::max<size_t>(packet + size_t{1}, 2 * first_.size()), kNone);
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(claims_.size()));
    claims_.emplace_back();
  }
  const uint32_t id = free_.back();
  free_.pop_back();
  claims_[id] = {packet, hop, channel, port, first_[packet]};
  first_[packet] = id;
  lines_.push(channel, port, id);
}

// Off its packet's list; it is in no line any more.
void Claims::drop(uint32_t id) {
  uint32_t* link = &first_[claims_[id].packet];
  while (*link != id) link = &claims_[*link].next;
  *link = claims_[id].next;
  free_.push_back(id);
}

std::vector<Claims::Claim> Claims::items(uint32_t channel) const {
  std::vector<Claim> found;
  for (const WaitLines::Item& item : lines_.items(channel)) found.push_back(claims_[item.id]);
  return found;
}

}  // namespace rostam::packet
