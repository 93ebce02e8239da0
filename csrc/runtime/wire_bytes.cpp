#include "runtime/wire_bytes.h"

#include <utility>

namespace rostam::runtime {

WireBytes::WireBytes(std::vector<int64_t> weights)
    : weights_(std::move(weights)), sent_(weights_.size(), 0.0), received_(weights_.size(), 0.0) {}

void WireBytes::count(int32_t source, int32_t target, double bytes) {
  sent_[source] += bytes;
  const auto num_senders = static_cast<double>(weights_[source]);
  received_[target] += bytes * num_senders / static_cast<double>(weights_[target]);
}

void WireBytes::count_end(int32_t source, int32_t end, double sent, double received) {
  const double each = static_cast<double>(weights_[source]) / static_cast<double>(weights_[end]);
  sent_[end] += sent * each;
  received_[end] += received * each;
}

void WireBytes::leave(int32_t device, int32_t accelerator) {
  elsewhere_.push_back({accelerator, std::exchange(sent_[device], 0.0), std::exchange(received_[device], 0.0)});
}

void WireBytes::fill(workload::SessionResult& result) const {
  result.wire_sent_bytes = sent_;
  result.wire_received_bytes = received_;
  result.wire_elsewhere = elsewhere_;
}

}  // namespace rostam::runtime
