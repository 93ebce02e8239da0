#include "circuits/planner_around.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "circuits/relays.h"
#include "sim/interrupt.h"

namespace rostam::circuits {

namespace {

constexpr Circuit kNobody = {-1, -1};

// Circuits and the places that they hold.
class Occupancy {
 public:
  Occupancy(int32_t num_pairs, int32_t num_places) : owner_(num_places, kNobody), count_(num_pairs, 0) {}

  int32_t count(int32_t pair) const { return count_[pair]; }
  bool is_free(const std::vector<int32_t>& places) const {
    return std::all_of(places.begin(), places.end(), [this](int32_t p) { return owner_[p] == kNobody; });
  }
  void give(const Circuit& one, const std::vector<int32_t>& places) {
    for (const int32_t p : places) owner_[p] = one;
    ++count_[one.pair];
  }
  void take_back(const Circuit& one, const std::vector<int32_t>& places) {
    for (const int32_t p : places) owner_[p] = kNobody;
    --count_[one.pair];
  }
  std::set<Circuit> owners(const std::vector<int32_t>& places) const {
    std::set<Circuit> found;
    for (const int32_t p : places) {
      if (!(owner_[p] == kNobody)) found.insert(owner_[p]);
    }
    return found;
  }
  // Whether each pair that loses these keeps one.
  bool can_spare(const std::set<Circuit>& circuits) const {
    std::vector<int32_t> pairs;
    for (const Circuit& one : circuits) pairs.push_back(one.pair);  // ascending
    for (size_t i = 0; i < pairs.size();) {
      size_t end = i;
      while (end < pairs.size() && pairs[end] == pairs[i]) ++end;
      if (count_[pairs[i]] <= static_cast<int32_t>(end - i)) return false;
      i = end;
    }
    return true;
  }

 private:
  std::vector<Circuit> owner_;
  std::vector<int32_t> count_;
};

// What is left of a setting; asks for its circuits in ascending order.
template <typename IsOut>
Setting all_but(const Setting& setting, IsOut is_out) {
  Setting left;
  for (const Circuit one : setting) {
    if (!is_out(one)) left.add(one);
  }
  return left;
}

}  // namespace

PlannerAround::PlannerAround(PairList pairs, std::unique_ptr<LightPaths> paths, Make make, Mirror mirror,
                             bool can_relay)
    : pairs_(std::move(pairs)),
      paths_(std::move(paths)),
      make_(std::move(make)),
      mirror_(mirror),
      can_relay_(can_relay) {
  if (mirror_ != Mirror::kNone) {
    std::map<std::pair<int32_t, int32_t>, int32_t> number;
    for (int32_t p = 0; p < pairs_.size(); ++p) number[{pairs_.src[p], pairs_.dst[p]}] = p;
    for (int32_t p = 0; p < pairs_.size(); ++p) opposite_.push_back(number.at({pairs_.dst[p], pairs_.src[p]}));
  }
  set_lost({});
}

void PlannerAround::set_lost(const std::vector<OpticalPart>& parts) {
  std::vector<int32_t> cut;
  std::set<int32_t> switches;
  is_lost_.assign(parts.empty() ? 0 : paths_->num_places(), 0);
  for (const OpticalPart& part : parts) {
    for (const int32_t place : paths_->places_of(part)) is_lost_[place] = 1;
    if (part.kind == OpticalKind::kSwitch) switches.insert(part.id);
    if (part.kind == OpticalKind::kSegment) cut.push_back(part.id);
  }
  channels_.clear();
  for (int32_t channel = 0; channel < paths_->num_channels(); ++channel) {
    if (switches.count(channel) == 0) channels_.push_back(channel);
  }
  inner_ = make_(channels_, cut);
  is_served_.assign(pairs_.size(), 1);
  if (parts.empty()) return;
  for (int32_t p = 0; p < pairs_.size(); ++p) {
    // A pair beyond reach is the inner planner's to relay.
    const bool is_in_reach = !paths_->places_of(pairs_.src[p], pairs_.dst[p], 0).empty() ||
                             !paths_->places_of(pairs_.src[p], pairs_.dst[p], paths_->num_channels() - 1).empty();
    is_served_[p] = !is_in_reach || std::any_of(channels_.begin(), channels_.end(),
                                                [&](int32_t channel) { return !places_of({p, channel}).empty(); });
  }
}

std::vector<int32_t> PlannerAround::places_of(const Circuit& one) const {
  std::vector<int32_t> places = paths_->places_of(pairs_.src[one.pair], pairs_.dst[one.pair], one.channel);
  if (std::any_of(places.begin(), places.end(), [this](int32_t p) { return is_lost_[p] != 0; })) places.clear();
  return places;
}

Setting PlannerAround::plan(const std::vector<double>& num_bytes, const Setting& held) const {
  if (is_lost_.empty()) return inner_->plan(num_bytes, held);
  std::vector<double> wanted = num_bytes;
  for (int32_t p = 0; p < pairs_.size(); ++p) {
    if (!is_served_[p]) wanted[p] = 0;
  }
  if (!can_relay_ && std::none_of(wanted.begin(), wanted.end(), [](double bytes) { return bytes > 0; })) return {};
  Setting before;
  for (const Circuit one : held) {
    const auto found = std::lower_bound(channels_.begin(), channels_.end(), one.channel);
    if (found == channels_.end() || *found != one.channel || places_of(one).empty()) continue;
    before.add(Circuit{one.pair, static_cast<int32_t>(found - channels_.begin())});
  }
  Setting setting;
  const Setting planned = inner_->plan(wanted, before);
  for (const Circuit one : planned) {
    const Circuit named = {one.pair, channels_[one.channel]};
    if (!places_of(named).empty()) setting.add(named);
  }
  complete(wanted, setting);
  if (can_relay_ && !reaches_all(pairs_, num_bytes, setting)) {
    Setting joined = working_ring();
    complete(wanted, joined);
    if (reaches_all(pairs_, num_bytes, joined)) return joined;
  }
  return setting;
}

void PlannerAround::complete(const std::vector<double>& num_bytes, Setting& setting) const {
  if (mirror_ == Mirror::kNone) return fill(num_bytes, setting);
  balance(setting);
  fill_both(num_bytes, setting);
}

// One circuit of each pair of the ring, on the first channel that is free and works.
Setting PlannerAround::working_ring() const {
  Occupancy held(pairs_.size(), paths_->num_places());
  std::vector<Circuit> ring;
  for (const int32_t pair : ring_pairs(pairs_, mirror_ != Mirror::kNone)) {
    poll_interrupt();
    const bool is_one = mirror_ == Mirror::kChannels;
    if (is_one && pair > opposite_[pair]) continue;
    for (const int32_t channel : channels_) {
      std::vector<int32_t> places = places_of({pair, channel});
      if (is_one && !places.empty()) {
        const std::vector<int32_t> back = places_of({opposite_[pair], channel});
        places.insert(places.end(), back.begin(), back.end());
      }
      if (places.empty() || !held.is_free(places)) continue;
      held.give({pair, channel}, places);
      ring.push_back({pair, channel});
      if (is_one) ring.push_back({opposite_[pair], channel});
      break;
    }
  }
  return Setting(std::move(ring));
}

PlannerAround::Change PlannerAround::change(const Setting& setting, const Setting& held) const {
  Change made{without(setting, held), {}};
  Setting idle = paths_->undisturbed(pairs_, made.added, without(held, setting), is_lost_);
  if (mirror_ != Mirror::kNone) keep_mirrored(idle);
  made.now = idle.empty() ? setting : together(setting, idle);
  return made;
}

// Gives up idle circuits that would leave more of one direction than of the other.
void PlannerAround::keep_mirrored(Setting& idle) const {
  std::vector<int32_t> room(pairs_.size(), 0), count(pairs_.size(), 0);  // the opposite pair's idle ones; own, kept
  for (const Circuit one : idle) ++room[opposite_[one.pair]];
  const auto is_alone = [&](const Circuit& one) {
    if (mirror_ == Mirror::kChannels) return !idle.has({opposite_[one.pair], one.channel});
    return count[one.pair]++ >= room[one.pair];
  };
  idle = all_but(idle, is_alone);
}

// Gives up what the opposite pair has nothing for any more.
void PlannerAround::balance(Setting& setting) const {
  std::vector<int32_t> count(pairs_.size(), 0), kept(pairs_.size(), 0);
  for (const Circuit one : setting) ++count[one.pair];
  const auto is_alone = [&](const Circuit& one) {
    const int32_t other = opposite_[one.pair];
    if (mirror_ == Mirror::kChannels) return !setting.has({other, one.channel});
    return kept[one.pair]++ >= count[other];
  };
  setting = all_but(setting, is_alone);
}

void PlannerAround::fill_both(const std::vector<double>& num_bytes, Setting& setting) const {
  Occupancy held(pairs_.size(), paths_->num_places());
  std::set<Circuit> all(setting.begin(), setting.end());
  for (const Circuit one : setting) held.give(one, places_of(one));
  const auto give = [&](const Circuit& one) {
    held.give(one, places_of(one));
    all.insert(one);
  };
  const auto is_open = [&](int32_t pair, int32_t channel) {
    const std::vector<int32_t> places = places_of({pair, channel});
    return !places.empty() && held.is_free(places);
  };
  const auto first_open = [&](int32_t pair, int32_t other) {  // -1 for none
    for (int32_t channel = 0; channel < paths_->num_channels(); ++channel) {
      if (is_open(pair, channel) && (other < 0 || is_open(other, channel))) return channel;
    }
    return -1;
  };
  const auto wanted = [&](int32_t pair) { return std::max(num_bytes[pair], num_bytes[opposite_[pair]]); };
  using Entry = std::pair<double, int32_t>;  // circuits a byte, pair: the first of both directions
  std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> slowest;
  for (int32_t p = 0; p < pairs_.size(); ++p) {
    if (p < opposite_[p] && wanted(p) > 0) slowest.emplace(held.count(p) / wanted(p), p);
  }
  InterruptPoll poll;
  while (!slowest.empty()) {
    poll();
    const int32_t pair = slowest.top().second, other = opposite_[pair];
    slowest.pop();
    const bool is_one = mirror_ == Mirror::kChannels;
    const int32_t forth = first_open(pair, is_one ? other : -1), back = is_one ? forth : first_open(other, -1);
    if (forth < 0 || back < 0) continue;
    give({pair, forth});
    give({other, back});
    slowest.emplace(held.count(pair) / wanted(pair), pair);
  }
  for (int32_t pair = 0; pair < pairs_.size(); ++pair) {
    poll();
    if (pair > opposite_[pair] || wanted(pair) <= 0 || held.count(pair) > 0) continue;
    for (int32_t channel = 0; channel < paths_->num_channels(); ++channel) {
      const Circuit both[] = {{pair, channel}, {opposite_[pair], channel}};
      if (places_of(both[0]).empty() || places_of(both[1]).empty()) continue;
      std::set<Circuit> owners = held.owners(places_of(both[0]));
      owners.merge(held.owners(places_of(both[1])));
      std::set<Circuit> ousted = owners;
      for (const Circuit& one : owners) {
        const int32_t other = opposite_[one.pair];
        if (owners.count({other, one.channel}) > 0) continue;
        Circuit twin = {other, one.channel};
        if (all.count(twin) == 0) {
          auto at = all.lower_bound({other, -1});
          while (ousted.count(*at) > 0) ++at;  // there are as many back as forth
          twin = *at;
        }
        ousted.insert(twin);
      }
      if (!held.can_spare(ousted)) continue;
      for (const Circuit& one : ousted) {
        held.take_back(one, places_of(one));
        all.erase(one);
      }
      for (const Circuit& one : both) give(one);
      break;
    }
  }
  setting = Setting({all.begin(), all.end()});
}

void PlannerAround::fill(const std::vector<double>& num_bytes, Setting& setting) const {
  Occupancy held(pairs_.size(), paths_->num_places());
  std::set<Circuit> all(setting.begin(), setting.end());
  for (const Circuit one : setting) held.give(one, places_of(one));
  using Entry = std::tuple<double, int32_t, int32_t>;  // circuits a byte, pair, its next channel
  std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> slowest;
  for (int32_t p = 0; p < pairs_.size(); ++p) {
    if (num_bytes[p] > 0) slowest.emplace(held.count(p) / num_bytes[p], p, 0);
  }
  // Places are only ever taken here, so a channel that was not free for a pair will not be.
  InterruptPoll poll;
  while (!slowest.empty()) {
    poll();
    auto [ratio, pair, channel] = slowest.top();
    slowest.pop();
    for (; channel < paths_->num_channels(); ++channel) {
      const std::vector<int32_t> places = places_of({pair, channel});
      if (places.empty() || !held.is_free(places)) continue;
      held.give({pair, channel}, places);
      all.insert({pair, channel});
      slowest.emplace(held.count(pair) / num_bytes[pair], pair, channel + 1);
      break;
    }
  }
  for (int32_t pair = 0; pair < pairs_.size(); ++pair) {
    poll();
    if (num_bytes[pair] <= 0 || held.count(pair) > 0) continue;
    for (int32_t channel = 0; channel < paths_->num_channels(); ++channel) {
      const std::vector<int32_t> places = places_of({pair, channel});
      const std::set<Circuit> owners = held.owners(places);
      if (places.empty() || !held.can_spare(owners)) continue;
      for (const Circuit& one : owners) {
        held.take_back(one, places_of(one));
        all.erase(one);
      }
      held.give({pair, channel}, places);
      all.insert({pair, channel});
      break;
    }
  }
  setting = Setting({all.begin(), all.end()});
}

}  // namespace rostam::circuits
