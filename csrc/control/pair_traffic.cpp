#include "control/pair_traffic.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "sim/errors.h"

namespace rostam::control {

namespace {

// Of a blend: what the periods before count for in the next one, and what the iteration counts for. Rings of an
// all-reduce go step by step: a window in which a pair waits for the one before it says nothing of it. transformer_350m
// in groups of 4 on a SiP-Ring takes [ms an iteration], by accelerators and Gb/s:
//                           16, 512  64, 512  64, 1024  64, 2048  128, 1024  128, 2048
//   set once                   126      140      83.9      58.5       84.6       58.5
//   last window                 93      137        -       78          -        119
//   blend, 0.5 and 0.5         105      150      90.9      58.0       90.3       58.3
//   blend, 0.8 and 0.5         109      142      84.8      57.7       87.0       57.8
//   blend, 0.9 and 0.5         122      143      88.2      58.0       88.8       58.2
//   blend, 0.9 and 0.7         126      140      86.9      58.1       89.1       58.3
constexpr double kMemory = 0.8, kIterationShare = 0.5;

struct Entry {
  const char* name;
  Estimator value;
  const char* summary;
};
constexpr Entry kEstimators[] = {
    {"iteration", Estimator::kIteration, "the known traffic of a whole iteration"},
    {"last_window", Estimator::kLastWindow,
     "what pairs had to send in the last period, left over from before included"},
    {"blend", Estimator::kBlend,
     "the same of all periods, each for 0.8 of the next one, and as much of the known iteration"},
    {"backlog", Estimator::kBacklog, "what pairs have still to send"},
    {"active", Estimator::kActive, "which pairs have anything to send, all alike, as fair shares would have it"},
    {"perfect", Estimator::kPerfect,
     "that, and what they hand over in the coming period: flows that are given, or as the last iteration did"},
};

}  // namespace

Estimator estimator_of(const std::string& name) {
  std::string known;
  for (const Entry& entry : kEstimators) {
    if (name == entry.name) return entry.value;
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  ROSTAM_THROW(ConfigError, "unknown estimator '" << name << "'; there are " << known);
}

std::vector<std::pair<std::string, std::string>> estimators() {
  std::vector<std::pair<std::string, std::string>> all;
  for (const Entry& entry : kEstimators) all.emplace_back(entry.name, entry.summary);
  return all;
}

PairTraffic::PairTraffic(const circuits::PairList& pairs, std::vector<double> iteration_bytes,
                         std::vector<PairMessage> known, int32_t server_size, int32_t rail_size)
    : num_accelerators_(pairs.num_accelerators),
      server_size_(server_size),
      rail_size_(rail_size),
      src_(pairs.src),
      dst_(pairs.dst),
      first_from_(static_cast<size_t>(pairs.num_accelerators) + 1, 0),
      iteration_bytes_(std::move(iteration_bytes)),
      iteration_sum_(std::accumulate(iteration_bytes_.begin(), iteration_bytes_.end(), 0.0)),
      known_(std::move(known)),
      left_(src_.size(), 0),
      offered_(src_.size(), 0),
      recent_(src_.size(), 0),
      num_active_(src_.size(), 0) {
  for (int32_t p = 0; p < pairs.size(); ++p) {
    ++first_from_[static_cast<size_t>(src_[p]) + 1];
    const bool is_ordered = p == 0 || std::make_pair(src_[p - 1], dst_[p - 1]) < std::make_pair(src_[p], dst_[p]);
    ROSTAM_CHECK(is_ordered, "pair " << p << " of circuits is not behind the one before");
  }
  std::partial_sum(first_from_.begin(), first_from_.end(), first_from_.begin());
}

int32_t PairTraffic::find(int32_t src, int32_t dst) const {
  if (rail_size_ > 1) {
    if (src / rail_size_ == dst / rail_size_) return -1;
    src = src / rail_size_ * rail_size_ + dst % rail_size_;
  }
  src /= server_size_;
  dst /= server_size_;
  const auto first = dst_.begin() + first_from_[src], end = dst_.begin() + first_from_[static_cast<size_t>(src) + 1];
  const auto found = std::lower_bound(first, end, dst);
  return found == end || *found != dst ? -1 : static_cast<int32_t>(found - dst_.begin());
}

void PairTraffic::on_start(int32_t pair, double num_bytes, SimTime now) {
  const SimTime pause = num_under_way_ == 0 ? now - idle_since_ : SimTime::zero();
  if (num_under_way_ == 0) ++burst_;
  ++num_under_way_;
  ++num_started_;
  ++num_active_[pair];
  offered_[pair] += num_bytes;
  log_.push_back({now, pair, burst_, num_bytes, pause});
}

void PairTraffic::on_end(int32_t pair, SimTime now) {
  if (--num_under_way_ == 0) idle_since_ = now;
  --num_active_[pair];
}

std::vector<PairMessage> PairTraffic::take_from_log(const std::vector<int32_t>& accelerators) {
  std::vector<uint8_t> is_own(static_cast<size_t>(num_accelerators_), 0);
  const int32_t size = std::max(server_size_, rail_size_);
  for (const int32_t a : accelerators) is_own[a / size] = 1;
  std::vector<PairMessage> own, others;
  for (const PairMessage& one : log_) (is_own[src_[one.pair] / rail_size_] ? own : others).push_back(one);
  log_ = std::move(others);
  return own;
}

void PairTraffic::forget(const std::vector<int32_t>& accelerators) { take_from_log(accelerators); }

std::vector<PairMessage> PairTraffic::end_iteration(const std::vector<int32_t>& accelerators, SimTime now) {
  std::vector<PairMessage> own = take_from_log(accelerators);
  Iteration& last = last_[accelerators.front()];
  last.messages = own;
  for (PairMessage& one : last.messages) one.time = one.time - last.begin;
  last.begin = now;
  return own;
}

std::vector<double> PairTraffic::backlog(const ControlPlane& plane) const {
  std::vector<double> demand(src_.size(), 0);
  for (const Backlog& one : plane.backlogs()) {
    const int32_t pair = find(one.src, one.dst);
    if (pair >= 0) demand[pair] += one.num_bytes;
  }
  return demand;
}

std::vector<double> PairTraffic::estimate(Estimator by, const std::vector<double>& backlog, SimTime now,
                                          SimTime window) {
  if (by == Estimator::kIteration) return iteration_bytes_;
  std::vector<double> demand = backlog;
  if (by == Estimator::kActive) {
    for (double& bytes : demand) bytes = bytes > 0;
  }
  if (by == Estimator::kPerfect) add_coming(now, window, demand);
  if (by == Estimator::kLastWindow || by == Estimator::kBlend) {
    std::swap(demand, left_);  // the bytes left now begin the next window
    for (size_t p = 0; p < demand.size(); ++p) demand[p] += std::exchange(offered_[p], 0);
  }
  if (by == Estimator::kBlend) {
    double sum = 0;
    for (size_t p = 0; p < demand.size(); ++p) sum += recent_[p] = demand[p] + kMemory * recent_[p];
    for (size_t p = 0; p < demand.size(); ++p)
      demand[p] = (1 - kIterationShare) * recent_[p] + kIterationShare * sum * iteration_bytes_[p] / iteration_sum_;
  }
  return demand;
}

void PairTraffic::add_coming(SimTime now, SimTime window, std::vector<double>& demand) const {
  const auto add = [&](const std::vector<PairMessage>& messages, SimTime from) {
    const auto is_before = [](const PairMessage& one, SimTime time) { return one.time < time; };
    auto next = std::lower_bound(messages.begin(), messages.end(), from, is_before);
    // What starts at this very instant is under way already, or is about to be.
    for (; next != messages.end() && next->time <= from + window; ++next) {
      if (next->time > from) demand[next->pair] += next->num_bytes;
    }
  };
  add(known_, now);
  for (const auto& [first, last] : last_) add(last.messages, now - last.begin);
}

}  // namespace rostam::control
