#include "control/job_phases.h"

#include <algorithm>
#include <utility>

#include "sim/errors.h"

namespace rostam::control {

namespace {

constexpr double kStepsOfIteration = 72;  // of 5 degrees: Cassini, section 5
// Own: a link that bursts fill to this share together slows them; latencies between messages keep it below 1.
constexpr double kFull = 0.9;

// A burst as far as it lies in an iteration.
struct Piece {
  double begin_ps = 0, end_ps = 0;
  std::map<int32_t, double> busy_ps;  // of each link, at its capacity
  double length_ps() const { return end_ps - begin_ps; }
  double busiest_ps() const {
    double most = 0;
    for (const auto& [link, busy] : busy_ps) most = std::max(most, busy);
    return most;
  }
};

std::vector<Piece> pieces_of(const BurstLog& log, const Period& iteration, const CapacityOf& capacity) {
  std::vector<Piece> pieces;
  for (const Burst& burst : log.bursts()) {
    const SimTime until = burst.end < SimTime::never() ? burst.end : iteration.end;
    const SimTime begin = std::max(burst.begin, iteration.begin), end = std::min(until, iteration.end);
    if (end <= begin) continue;
    Piece piece;
    piece.begin_ps = static_cast<double>((begin - iteration.begin).ps());
    piece.end_ps = static_cast<double>((end - iteration.begin).ps());
    const double share = piece.length_ps() / static_cast<double>((until - burst.begin).ps());
    for (const auto& [link, bytes] : burst.bytes) {
      const double rate = capacity(link);
      if (rate > 0 && bytes > 0) piece.busy_ps[link] = bytes * share / rate * 1e12;
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

std::vector<Piece> merged(std::vector<Piece> pieces, double least_gap_ps) {
  std::vector<Piece> found;
  for (Piece& piece : pieces) {
    if (found.empty() || piece.begin_ps - found.back().end_ps >= least_gap_ps) {
      found.push_back(std::move(piece));
      continue;
    }
    found.back().end_ps = piece.end_ps;
    for (const auto& [link, busy] : piece.busy_ps) found.back().busy_ps[link] += busy;
  }
  return found;
}

// How fast a piece ran beside others, of which all last from some moment on.
double speed_beside(const Piece& own, const std::vector<const Piece*>& others) {
  const double own_busiest = own.busiest_ps();
  double speed = 1;
  for (const auto& [link, busy] : own.busy_ps) {
    double seen = busy / own.length_ps(), alone = busy / own_busiest;
    bool is_shared = false;
    for (const Piece* other : others) {
      const auto found = other->busy_ps.find(link);
      if (found == other->busy_ps.end()) continue;
      is_shared = true;
      seen += found->second / other->length_ps();
      alone += found->second / other->busiest_ps();
    }
    if (is_shared && seen >= kFull && alone > 1) speed = std::min(speed, 1 / alone);
  }
  return speed;
}

// What a piece would have taken alone.
double length_alone(const Piece& own, const std::vector<Piece>& others) {
  std::vector<double> moments = {own.begin_ps, own.end_ps};
  for (const Piece& other : others) {
    for (const double moment : {other.begin_ps, other.end_ps}) {
      if (moment > own.begin_ps && moment < own.end_ps) moments.push_back(moment);
    }
  }
  std::sort(moments.begin(), moments.end());
  double length = 0;
  for (size_t k = 0; k + 1 < moments.size(); ++k) {
    std::vector<const Piece*> there;
    for (const Piece& other : others) {
      if (other.begin_ps <= moments[k] && other.end_ps >= moments[k + 1]) there.push_back(&other);
    }
    length += (moments[k + 1] - moments[k]) * speed_beside(own, there);
  }
  return std::min(own.length_ps(), std::max(length, own.busiest_ps()));
}

}  // namespace

void BurstLog::start(SimTime now, const std::vector<LinkBytes>& links) {
  if (num_under_way_++ == 0) {
    // What begins as the last one ends goes on with it.
    if (!bursts_.empty() && bursts_.back().end == now) {
      bursts_.back().end = SimTime::never();
    } else {
      bursts_.push_back({now, SimTime::never(), {}});
    }
  }
  for (const LinkBytes& one : links) bursts_.back().bytes[one.link] += one.bytes;
}

void BurstLog::end(SimTime now) {
  ROSTAM_CHECK(num_under_way_ > 0, "a message ends that has not begun");
  if (--num_under_way_ == 0) bursts_.back().end = now;
}

void BurstLog::forget(SimTime before) {
  const auto is_old = [before](const Burst& one) { return one.end < before; };
  bursts_.erase(std::remove_if(bursts_.begin(), bursts_.end(), is_old), bursts_.end());
}

std::vector<JobPhase> phases_of(const BurstLog& own, const Period& iteration,
                                const std::vector<const BurstLog*>& others, const CapacityOf& capacity) {
  const auto length_ps = static_cast<double>((iteration.end - iteration.begin).ps());
  std::vector<Piece> beside;
  for (const BurstLog* other : others) {
    for (Piece& piece : pieces_of(*other, iteration, capacity)) beside.push_back(std::move(piece));
  }
  std::vector<JobPhase> phases;
  double cursor = 0;
  for (const Piece& piece : merged(pieces_of(own, iteration, capacity), length_ps / kStepsOfIteration)) {
    if (piece.begin_ps > cursor) phases.push_back({piece.begin_ps - cursor, {}});
    JobPhase phase;
    phase.length_ps = length_alone(piece, beside);
    for (const auto& [link, busy] : piece.busy_ps) phase.loads.push_back({link, busy / phase.length_ps});
    phases.push_back(std::move(phase));
    cursor = piece.end_ps;
  }
  if (length_ps > cursor) phases.push_back({length_ps - cursor, {}});
  return phases;
}

}  // namespace rostam::control
