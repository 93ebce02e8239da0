#include "runtime/stalls.h"

#include <algorithm>
#include <utility>

namespace rostam::runtime {

Stalls::Stalls(const folding::WeightedSystem& system, EventQueue& queue, Messenger& messenger,
               const ControlHost& control)
    : system_(system),
      queue_(queue),
      messenger_(messenger),
      control_(control),
      looks_(*this, &Stalls::look),
      num_categories_(system.graph->categories.size()),
      crowds_(static_cast<size_t>(system.graph->num_jobs) * num_categories_),
      stalls_(static_cast<size_t>(system.graph->num_jobs)) {
  messenger.carrier().watch(*this);
  on_change();
}

void Stalls::on_begin(int32_t message) {
  const bool is_waiting = messenger_[message].state == ParcelState::kWaiting;
  if (looks_at_all_ || !(has_dark_links_ || is_waiting)) return;
  begun_.push_back(message);
  schedule();
}

void Stalls::on_end(int32_t message) { set(message, false, -1); }

void Stalls::on_change() {
  looks_at_all_ = true;
  schedule();
}

// Once all that happens at this instant is through, and rates are solved: routing adaptive may go round what failed.
void Stalls::schedule() {
  if (std::exchange(is_scheduled_, true)) return;
  queue_.schedule(queue_.now(), Priority::kSolve, &looks_, 0);
}

void Stalls::look(uint64_t round) {
  if (round == 0) return queue_.schedule(queue_.now(), Priority::kSolve, &looks_, 1);
  is_scheduled_ = false;
  const std::vector<int32_t> begun = std::exchange(begun_, {});
  if (!std::exchange(looks_at_all_, false)) {
    for (const int32_t message : begun) look_at(message);
    return;
  }
  has_dark_links_ = control_.has_dark_links();
  for (int32_t message = 0; message < messenger_.num_parcels(); ++message) look_at(message);
}

void Stalls::look_at(int32_t message) {
  const bool is_still = messenger_.carrier().stands_still(message);
  set(message, is_still, is_still ? failure_of(message) : -1);
}

int32_t Stalls::failure_of(int32_t message) const {
  const Message& one = messenger_[message];
  int32_t first = -1;
  if (one.state == ParcelState::kSending) {
    for (const int32_t link : messenger_.carrier().network().links_of(one.route)) {
      const int32_t failure = control_.first_failure_of(link);
      if (failure >= 0 && (first < 0 || failure < first)) first = failure;
    }
  }
  return first >= 0 ? first : control_.first_failure();
}

void Stalls::set(int32_t message, bool is_still, int32_t failure) {
  const auto place = static_cast<size_t>(message);
  if (states_.size() <= place) states_.resize(place + 1);
  State& state = states_[place];
  if (state.is_still == is_still && state.failure == failure) return;
  if (state.is_still) {
    Crowd& left = crowds_[state.crowd];
    settle(left);
    if (--left.counts[state.failure] == 0) left.counts.erase(state.failure);
  }
  const Message& one = messenger_[message];
  state.is_still = is_still;
  state.failure = failure;
  if (!is_still) return;
  state.crowd =
      static_cast<int32_t>(static_cast<size_t>(system_.devices[one.source].job) * num_categories_) + one.category;
  settle(crowds_[state.crowd]);
  ++crowds_[state.crowd].counts[failure];
}

// The time until now is past; the first failure stands for it.
void Stalls::settle(Crowd& crowd) const {
  const SimTime since = std::exchange(crowd.since, queue_.now());
  if (crowd.counts.empty() || since == queue_.now()) return;
  const auto known = crowd.counts.lower_bound(0);
  const int32_t failure = known != crowd.counts.end() ? known->first : -1;
  const bool goes_on = !crowd.past.empty() && crowd.past.back().end == since && crowd.past.back().failure == failure;
  if (goes_on) {
    crowd.past.back().end = queue_.now();
  } else {
    crowd.past.push_back({since, queue_.now(), failure});
  }
}

void Stalls::end_iteration(int32_t job, int32_t iteration, const CriticalPath& path, const CriticalPath::Ref& last,
                           SimTime begin) {
  const auto first = crowds_.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(job) * num_categories_);
  bool has_any = false;
  for (size_t c = 0; c < num_categories_; ++c) {
    settle(first[static_cast<std::ptrdiff_t>(c)]);
    has_any = has_any || !first[static_cast<std::ptrdiff_t>(c)].past.empty();
  }
  if (!has_any) return;
  std::vector<workload::Stall> found;
  for (const PathNode& node : path.chain_since(last, begin)) {
    if (node.is_join || node.is_host) continue;
    const workload::Task& task = system_.graph->templates[node.template_id].tasks[node.task];
    if (task.kind == workload::TaskKind::kCompute) continue;
    const std::vector<Span>& past = first[task.category].past;
    for (auto span = past.rbegin(); span != past.rend() && span->end > std::max(begin, node.start); ++span) {
      const SimTime from = std::max({begin, node.start, span->begin}), to = std::min(node.end, span->end);
      if (from < to) found.push_back({iteration, from, to, span->failure});
    }
  }
  std::vector<workload::Stall>& all = stalls_[job];
  for (auto one = found.rbegin(); one != found.rend(); ++one) {
    const bool goes_on = !all.empty() && all.back().iteration == iteration && all.back().end == one->begin &&
                         all.back().failure == one->failure;
    if (goes_on) {
      all.back().end = one->end;
    } else {
      all.push_back(*one);
    }
  }
  for (size_t c = 0; c < num_categories_; ++c) first[static_cast<std::ptrdiff_t>(c)].past.clear();
}

void Stalls::restart(int32_t job, int32_t iteration) {
  std::vector<workload::Stall>& all = stalls_[job];
  while (!all.empty() && all.back().iteration >= iteration) all.pop_back();
}

void Stalls::fill(workload::SessionResult& result) const {
  for (size_t job = 0; job < stalls_.size(); ++job) result.jobs[job].stalls = stalls_[job];
}

}  // namespace rostam::runtime
