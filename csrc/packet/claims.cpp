#include "packet/claims.h"

#include <algorithm>

namespace rostam::packet {

void Claims::stand(uint32_t item, uint32_t hop, uint32_t channel, uint32_t port) {
  if (first_.size() <= item) first_.resize(std::max<size_t>(item + size_t{1}, 2 * first_.size()), kNone);
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(claims_.size()));
    claims_.emplace_back();
  }
  const uint32_t made = free_.back();
  free_.pop_back();
  claims_[made] = {item, hop, channel, port, first_[item]};
  first_[item] = made;
  lines_.push(channel, port, made);
}

// Off its item's list; it is in no line any more.
void Claims::drop(uint32_t claim) {
  uint32_t* link = &first_[claims_[claim].item];
  while (*link != claim) link = &claims_[*link].next;
  *link = claims_[claim].next;
  free_.push_back(claim);
}

std::vector<Claims::Claim> Claims::claims(uint32_t channel) const {
  std::vector<Claim> found;
  for (const WaitLines::Item& item : lines_.items(channel)) found.push_back(claims_[item.id]);
  return found;
}

}  // namespace rostam::packet
