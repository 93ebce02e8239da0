// max_min: the objective itself, by local search: the largest least share of the worst job, then of the next. From what
// greedy_by_sets chooses, one commodity after another that has the least share of its job moves to another path; who is
// in its way there takes the path that became free, and so on, as in the exchange of two colours. What is better for
// jobs from the worst up is kept. At most kMostTrials such chains are tried; what meets others on as few
// as any assignment could have is left where it is. Source: objective of Cohen et al., Routing for Large ML Models;
// search: own.
#include <algorithm>
#include <utility>

#include "assignment/registry.h"
#include "assignment/sets.h"
#include "assignment/shares.h"
#include "sim/interrupt.h"

namespace rostam::assignment {

namespace {

constexpr int kMostTrials = 200;
constexpr size_t kMostMoves = 256;  // of a chain
constexpr double kAlike = 1e-9;     // relative difference of shares that are the same

class MaxMin : public Assigner {
 public:
  Assignment assign(const PathProblem& problem) override {
    Assignment chosen = make_greedy_by_sets_assigner({})->assign(problem);
    Shares now = find_shares(problem, chosen);
    const Meetings meetings(problem);
    num_left_ = kMostTrials;
    while (num_left_ > 0 && improve(problem, meetings, chosen, now)) {
    }
    return chosen;
  }

 private:
  struct Move {
    int32_t number, from, to;
  };

  // Makes one chain of moves that is better. Returns false if none of those tried is.
  bool improve(const PathProblem& problem, const Meetings& meetings, Assignment& chosen, Shares& now) {
    LinkCounts counts(problem);
    for (int32_t number = 0; number < problem.size(); ++number) counts.add(number, chosen[static_cast<size_t>(number)]);
    InterruptPoll poll;
    for (const int32_t number : worst_first(problem, now)) {
      const int32_t own = chosen[static_cast<size_t>(number)];
      const bool is_best = counts.is_alone(number, own) || counts.busiest(number, own) <= meetings.least_load(number);
      if (is_best) continue;
      for (int32_t path = 0; path < problem.num_paths(number); ++path) {
        if (path == chosen[static_cast<size_t>(number)]) continue;
        poll();
        const std::vector<Move> moves = chain(problem, chosen, counts, number, path);
        if (moves.empty()) continue;
        if (num_left_-- <= 0) return false;
        for (const Move& move : moves) chosen[static_cast<size_t>(move.number)] = move.to;
        Shares then = find_shares(problem, chosen);
        if (is_better(then, now)) {
          now = std::move(then);
          return true;
        }
        for (const Move& move : moves) chosen[static_cast<size_t>(move.number)] = move.from;
      }
    }
    return false;
  }

  // The moves that a commodity's to another path brings about, so that no link carries as much as its busiest one does
  // now unless it does already, and then no more; none if there are no such. Leaves `counts` as they were.
  static std::vector<Move> chain(const PathProblem& problem, const Assignment& chosen, LinkCounts& counts,
                                 int32_t number, int32_t path) {
    const double busy = counts.busiest(number, chosen[static_cast<size_t>(number)]);
    const LinkCounts before = counts;
    std::vector<Move> moves;
    std::vector<uint8_t> has_moved(chosen.size(), 0);
    const auto make = [&](int32_t one, int32_t to) {
      moves.push_back({one, chosen[static_cast<size_t>(one)], to});
      has_moved[static_cast<size_t>(one)] = 1;
      counts.add(one, moves.back().from, -1);
      counts.add(one, to);
    };
    make(number, path);
    bool is_free = true;
    for (size_t next = 0; next < moves.size() && is_free; ++next) {
      const Move move = moves[next];
      for (const int32_t link : problem.loaded_links(move.number, move.to)) {
        while (is_free && counts.on(link) >= busy && counts.on(link) > before.on(link)) {
          const int32_t other =
              moves.size() < kMostMoves ? in_the_way(problem, chosen, has_moved, link, move) : kNobody;
          is_free = other != kNobody;
          if (is_free) make(other, move.from);
        }
      }
    }
    for (const Move& move : moves) {
      counts.add(move.number, move.to, -1);
      counts.add(move.number, move.from);
    }
    if (!is_free) moves.clear();
    return moves;
  }

  static constexpr int32_t kNobody = -1;

  // A commodity on the link that can change places with one that moves onto it.
  static int32_t in_the_way(const PathProblem& problem, const Assignment& chosen, const std::vector<uint8_t>& has_moved,
                            int32_t link, const Move& move) {
    for (int32_t other = 0; other < problem.size(); ++other) {
      const bool could = chosen[static_cast<size_t>(other)] == move.to && move.from < problem.num_paths(other);
      if (!could || has_moved[static_cast<size_t>(other)] != 0) continue;
      const std::vector<int32_t>& links = problem.loaded_links(other, move.to);
      if (std::find(links.begin(), links.end(), link) != links.end()) return other;
    }
    return kNobody;
  }

  // Commodities with the least share of their jobs, those of the worst job first.
  static std::vector<int32_t> worst_first(const PathProblem& problem, const Shares& now) {
    std::vector<int32_t> found;
    for (int32_t number = 0; number < problem.size(); ++number) {
      const double least = now.of_jobs.at(problem.commodity(number).job);
      if (now.rates[static_cast<size_t>(number)] <= least * (1 + kAlike)) found.push_back(number);
    }
    std::stable_sort(found.begin(), found.end(), [&](int32_t a, int32_t b) {
      return now.of_jobs.at(problem.commodity(a).job) < now.of_jobs.at(problem.commodity(b).job);
    });
    return found;
  }

  // Of two that give jobs the same the one in which fewer commodities have the least share, then the less crowded one.
  static bool is_better(const Shares& then, const Shares& now) {
    const std::vector<double> one = then.objective(), other = now.objective();
    for (size_t i = 0; i < std::min(one.size(), other.size()); ++i) {
      if (one[i] > other[i] * (1 + kAlike)) return true;
      if (one[i] < other[i] * (1 - kAlike)) return false;
    }
    if (then.num_least != now.num_least) return then.num_least < now.num_least;
    return then.crowding < now.crowding;
  }

  int num_left_ = 0;
};

}  // namespace

std::unique_ptr<Assigner> make_max_min_assigner(const AssignerOptions&) { return std::make_unique<MaxMin>(); }

}  // namespace rostam::assignment
