#include "runtime/ledger.h"

#include <algorithm>
#include <utility>

#include "sim/checked.h"

namespace rostam::runtime {

Ledger::Ledger(const folding::WeightedSystem& system, const Jobs& jobs)
    : system_(system), jobs_(jobs), num_categories_(system.graph->categories.size()) {
  for (const workload::Device& device : system.devices) {
    first_place_.push_back(static_cast<size_t>(device.job) * num_categories_);
  }
}

Ledger::Traffic& Ledger::traffic(int32_t device, int32_t iteration, int32_t category) {
  const auto place = static_cast<size_t>(iteration);
  if (traffic_.size() <= place) {
    traffic_.resize(place + 1, std::vector<Traffic>(static_cast<size_t>(jobs_.size()) * num_categories_));
  }
  return traffic_[place][first_place_[device] + static_cast<size_t>(category)];
}

void Ledger::count_sent(int32_t source, int32_t iteration, int32_t category, int64_t bytes, int64_t num_messages) {
  Traffic& all = traffic(source, iteration, category);
  const int64_t number = num_messages * system_.weights[source];
  all.sent_bytes = checked_add(all.sent_bytes, checked_multiply(bytes, number));
  all.num_messages += number;
}

void Ledger::count_received(int32_t source, int32_t iteration, int32_t category, int64_t bytes, int64_t num_messages) {
  Traffic& all = traffic(source, iteration, category);
  all.received_bytes = checked_add(all.received_bytes, checked_multiply(bytes, num_messages * system_.weights[source]));
}

void Ledger::count_made(int32_t source, int32_t iteration, int32_t category, int64_t bytes) {
  Traffic& all = traffic(source, iteration, category);
  all.made_bytes = checked_add(all.made_bytes, checked_multiply(bytes, system_.weights[source]));
}

void Ledger::count_collective(int32_t device, int32_t iteration, const workload::Task& task, SimTime duration,
                              int64_t chunks_sent) {
  const auto place = static_cast<size_t>(iteration);
  if (completed_.size() <= place) completed_.resize(place + 1);
  completed_[place].resize(static_cast<size_t>(jobs_.size()));
  std::vector<Participants>& of_job = completed_[place][static_cast<size_t>(system_.devices[device].job)];
  if (of_job.size() <= static_cast<size_t>(task.schedule)) of_job.resize(static_cast<size_t>(task.schedule) + 1);
  Participants& all = of_job[task.schedule];
  const int64_t num_ranks = system_.weights[device];
  all.chunks_sent += chunks_sent * num_ranks;
  all.num_ranks += num_ranks;
  workload::CollectiveTimes& times = traffic(device, iteration, task.category).collectives;
  times.count += num_ranks;
  times.total_ps += static_cast<double>(duration.ps()) * static_cast<double>(num_ranks);
  times.longest_ps = std::max(times.longest_ps, duration.ps());
  const int64_t sent_bytes = checked_multiply(chunks_sent, system_.graph->chunk_bytes(task));
  times.sent_bytes = checked_add(times.sent_bytes, checked_multiply(sent_bytes, num_ranks));
}

void Ledger::end_iteration(network::NetworkStats stats) {
  links_last_.push_back(std::move(stats));
  if (jobs_.num_done(0) == 1) links_first_ = links_last_.back();
  if (links_last_.size() > kMaxCycle + 1) links_last_.pop_front();
}

void Ledger::check() const {
  for (size_t i = 0; i < traffic_.size(); ++i) {
    for (size_t k = 0; k < traffic_[i].size(); ++k) {
      const auto job = static_cast<int32_t>(k / num_categories_);
      if (i + 1 >= jobs_.ends(job).size()) continue;  // that job stopped inside this iteration
      const int64_t through = traffic_[i][k].sent_bytes + traffic_[i][k].made_bytes;
      ROSTAM_CHECK(through == traffic_[i][k].received_bytes + traffic_[i][k].lost_bytes,
                   "job " << job << ", iteration " << i << ", " << system_.graph->categories[k % num_categories_]
                          << ": " << through << " bytes sent or copied, " << traffic_[i][k].received_bytes
                          << " received, " << traffic_[i][k].lost_bytes << " lost");
    }
  }
  check_collectives();
}

void Ledger::check_collectives() const {
  const auto product = [](int64_t a, int64_t b) { return static_cast<__int128>(a) * b; };
  for (size_t i = 0; i < completed_.size(); ++i) {
    for (int32_t job = 0; job < static_cast<int32_t>(completed_[i].size()); ++job) {
      if (i + 1 >= jobs_.ends(job).size()) continue;  // that job stopped inside this iteration
      const std::vector<Participants>& of_job = completed_[i][job];
      for (size_t k = 0; k < of_job.size(); ++k) {
        const Participants& all = of_job[k];
        const collectives::Schedule& schedule = *system_.graph->schedules[k];
        // Every group completes whole, so ranks / p groups sent the closed form each.
        ROSTAM_CHECK(product(all.chunks_sent, schedule.shape().num_ranks) ==
                         product(all.num_ranks, schedule.total_chunks_sent()),
                     "schedule " << k << ": " << all.num_ranks << " ranks sent " << all.chunks_sent
                                 << " chunks, the closed form of a group is " << schedule.total_chunks_sent());
      }
    }
  }
}

void Ledger::count_lost(int32_t source, int32_t iteration, int32_t category, int64_t sent, int64_t lost) {
  Traffic& all = traffic(source, iteration, category);
  all.sent_bytes = checked_add(all.sent_bytes, sent);
  all.lost_bytes = checked_add(all.lost_bytes, lost);
}

workload::Restart Ledger::restart(int32_t job, int32_t iteration) {
  workload::Restart given_up;
  int64_t made_bytes = 0;
  for (size_t i = static_cast<size_t>(iteration); i < traffic_.size(); ++i) {
    for (size_t c = 0; c < num_categories_; ++c) {
      const Traffic one = std::exchange(traffic_[i][static_cast<size_t>(job) * num_categories_ + c], Traffic());
      made_bytes = checked_add(made_bytes, one.made_bytes);
      given_up.sent_bytes = checked_add(given_up.sent_bytes, one.sent_bytes);
      given_up.received_bytes = checked_add(given_up.received_bytes, one.received_bytes);
      given_up.lost_bytes = checked_add(given_up.lost_bytes, one.lost_bytes);
    }
  }
  for (int32_t done = jobs_.num_done(0); job == 0 && done > iteration && !links_last_.empty(); --done) {
    links_last_.pop_back();
  }
  for (size_t i = static_cast<size_t>(iteration); i < completed_.size(); ++i) {
    if (!completed_[i].empty()) completed_[i][job].clear();
  }
  ROSTAM_CHECK(given_up.sent_bytes + made_bytes == given_up.received_bytes + given_up.lost_bytes,
               "job " << job << " is restarted: " << given_up.sent_bytes << " bytes sent, " << given_up.received_bytes
                      << " received, " << given_up.lost_bytes << " lost");
  return given_up;
}

void Ledger::fill(const network::NetworkStats& total, workload::SessionResult& result) const {
  for (int32_t job = 0; job < jobs_.size(); ++job) {
    const size_t last = jobs_.ends(job).size() - 2;
    for (size_t c = 0; c < num_categories_; ++c) {
      const size_t place = static_cast<size_t>(job) * num_categories_ + c;
      const Traffic one = last < traffic_.size() ? traffic_[last][place] : Traffic{};
      result.sent_bytes.push_back(one.sent_bytes);
      result.received_bytes.push_back(one.received_bytes);
      result.num_messages.push_back(one.num_messages);
      for (size_t i = 0; i <= last; ++i) {
        const bool has_any = i < traffic_.size();
        result.jobs[job].collectives.push_back(has_any ? traffic_[i][place].collectives : workload::CollectiveTimes{});
      }
    }
  }
  fill_links(result);
  result.total_link_bytes = total.link_bytes;
}

// From the end of the iteration before those that are averaged; where that is no more kept, as after a restart far
// back, from the first of the ends that are.
void Ledger::fill_links(workload::SessionResult& result) const {
  if (links_last_.empty()) return;
  result.link_bytes = links_last_.back().link_bytes;
  result.link_busy_s = links_last_.back().link_busy_s;
  const auto num_done = static_cast<size_t>(jobs_.num_done(0)), kept = links_last_.size() - 1;
  size_t num = static_cast<size_t>(jobs_.num_averaged(0));
  if (num >= num_done) return;
  if (num > kept && num + 1 != num_done) num = kept > 0 ? kept : num_done - 1;
  const network::NetworkStats& since = num <= kept ? links_last_[kept - num] : links_first_;
  for (size_t l = 0; l < since.link_bytes.size(); ++l) {
    result.link_bytes[l] = (result.link_bytes[l] - since.link_bytes[l]) / static_cast<double>(num);
    result.link_busy_s[l] = (result.link_busy_s[l] - since.link_busy_s[l]) / static_cast<double>(num);
  }
}

}  // namespace rostam::runtime
