#include "routing/minimal_paths.h"

#include <algorithm>

namespace rostam::routing {

using fabric::Hop;
using fabric::HopSpan;

namespace {

constexpr size_t kMaxCacheBytes = size_t{64} << 20;

// The hops whose neighbour is numbered first..last-1; spans are sorted by neighbour.
HopSpan between(HopSpan hops, int32_t first, int32_t last) {
  const auto is_before = [](const Hop& hop, int32_t vertex) { return hop.neighbour < vertex; };
  const Hop* begin = std::lower_bound(hops.begin(), hops.end(), first, is_before);
  return {begin, std::lower_bound(begin, hops.end(), last, is_before)};
}

}  // namespace

MinimalPaths::MinimalPaths(std::shared_ptr<const fabric::Fabric> fabric) : MinimalPaths(std::move(fabric), nullptr) {}

MinimalPaths::MinimalPaths(std::shared_ptr<const fabric::Fabric> fabric, std::shared_ptr<const fabric::PathRule> rule)
    : fabric_(std::move(fabric)),
      rule_(std::move(rule)),
      function_(rule_ == nullptr ? fabric_->closed_form() : nullptr),
      num_phases_(this->rule() == nullptr ? 1 : this->rule()->num_phases()),
      detour_phase_(this->rule() == nullptr ? -1 : this->rule()->detour_phase()) {
  const size_t row_bytes = sizeof(int32_t) * static_cast<size_t>(num_places());
  max_rows_ = std::max<size_t>(1, kMaxCacheBytes / row_bytes);
}

void MinimalPaths::aim(int32_t dst) {
  if (dst == dst_ && (row_ == nullptr) == (function_ != nullptr)) return;
  if (dst < 0 || dst >= fabric_->num_accelerators()) {
    ROSTAM_THROW(ConfigError, "accelerator " << dst << " does not exist; fabric " << fabric_->name() << " has 0.."
                                             << fabric_->num_accelerators() - 1);
  }
  row_ = function_ != nullptr ? nullptr : search(dst);
  dst_ = dst;
}

void MinimalPaths::aim_at_vertex(int32_t vertex) {
  if (vertex == dst_ && row_ != nullptr) return;
  row_ = search(vertex);
  dst_ = vertex;
}

void MinimalPaths::rank_phases() const {
  if (rule() == nullptr || !ranks_.empty()) return;
  const std::vector<fabric::Link>& links = fabric_->links();
  const auto num_phases = static_cast<size_t>(num_phases_);
  ranks_.assign(links.size() * num_phases, -1);
  for (size_t l = 0; l < links.size(); ++l) {
    int16_t* ranks = ranks_.data() + l * num_phases;
    for (int32_t phase = 0; phase < num_phases_; ++phase) {
      const int32_t next = rule()->next_phase(phase, links[l]);
      if (next >= 0) ranks[next] = 0;
    }
    int16_t count = 0;
    for (size_t phase = 0; phase < num_phases; ++phase) {
      if (ranks[phase] == 0) ranks[phase] = count++;
    }
    if (fabric_->can_forward(links[l].dst)) most_channels_ = std::max<int32_t>(most_channels_, count);
  }
}

int32_t MinimalPaths::num_virtual_channels() const {
  rank_phases();
  return most_channels_;
}

void MinimalPaths::number_channels(Steps& steps) const {
  rank_phases();
  if (ranks_.empty()) return;
  for (Steps::Hop& hop : steps.hops) {
    hop.channel =
        ranks_[static_cast<size_t>(hop.link) * static_cast<size_t>(num_phases_) + static_cast<size_t>(hop.channel)];
  }
}

int32_t MinimalPaths::number_of(int32_t link, int32_t phase) const {
  rank_phases();
  if (ranks_.empty()) return 0;
  return ranks_[static_cast<size_t>(link) * static_cast<size_t>(num_phases_) + static_cast<size_t>(phase)];
}

const MinimalPaths::Row* MinimalPaths::search(int32_t dst) {
  const auto found = row_of_.find(dst);
  if (found != row_of_.end()) {
    rows_.splice(rows_.begin(), rows_, found->second);
    return &rows_.front().second;
  }
  std::vector<int32_t> hops = fabric_->search_distances(dst, rule());  // first: it may be interrupted
  if (rows_.size() >= max_rows_) {
    row_of_.erase(rows_.back().first);
    rows_.pop_back();
  }
  rows_.emplace_front(dst, std::move(hops));
  row_of_[dst] = rows_.begin();
  return &rows_.front().second;
}

void MinimalPaths::append_allowed_hops(int32_t place, std::vector<Hop>& hops) const {
  const int32_t here = distance(place);
  for (const Hop& hop : fabric_->out(vertex_of(place))) {
    const int32_t phase = rule()->next_phase(phase_of(place), fabric_->links()[static_cast<size_t>(hop.link)]);
    if (phase < 0) continue;
    const int32_t there = hop.neighbour == dst_ ? end() : hop.neighbour * num_phases_ + phase;
    if (distance(there) == here - 1 && (there == end() || fabric_->can_forward(hop.neighbour))) {
      hops.push_back({hop.link, there});
    }
  }
}

HopSpan MinimalPaths::next_hops(int32_t vertex, std::vector<Hop>& hops) const {
  hops.clear();
  if (num_phases_ > 1) {
    append_allowed_hops(vertex, hops);
    return {hops.data(), hops.data() + hops.size()};
  }
  const HopSpan out = fabric_->out(vertex);
  int32_t first = dst_;
  int32_t last = dst_ + 1;
  const bool is_range = row_ == nullptr && function_->next_range(vertex, dst_, first, last);
  const int32_t here = is_range ? 0 : distance(vertex);
  if (is_range || here == 1) return between(out, first, last);
  for (const Hop& hop : out) {
    if (distance(hop.neighbour) == here - 1 && fabric_->can_forward(hop.neighbour)) hops.push_back(hop);
  }
  return {hops.data(), hops.data() + hops.size()};
}

void MinimalPaths::check_pair(int32_t src) const {
  if (src < 0 || src >= fabric_->num_accelerators()) {
    ROSTAM_THROW(ConfigError, "accelerator " << src << " does not exist; fabric " << fabric_->name() << " has 0.."
                                             << fabric_->num_accelerators() - 1);
  }
  for (const int32_t end : {src, dst_}) {
    if (fabric_->is_vertex_failed(end)) {
      ROSTAM_THROW(NoRouteError, "no path from accelerator " << src << " to accelerator " << dst_ << " of fabric "
                                                             << fabric_->name() << ": accelerator " << end
                                                             << " has failed");
    }
  }
  if (distance(start(src)) < fabric::kUnreachable) return;
  if (!fabric_->no_route_hint().empty()) {
    ROSTAM_THROW(NoRouteError, "no path from accelerator " << src << " to accelerator " << dst_ << " of fabric "
                                                           << fabric_->name() << ": " << fabric_->no_route_hint());
  }
  const fabric::Failures& failed = fabric_->failures();
  ROSTAM_THROW(NoRouteError, "no path is left from accelerator "
                                 << src << " to accelerator " << dst_ << " of fabric " << fabric_->name() << " with "
                                 << failed.switches.size() << " switches, " << failed.cables.size() << " links and "
                                 << failed.accelerators.size() << " accelerators failed");
}

}  // namespace rostam::routing
