// annealing: from hashed paths, one commodity's move at a time; the energy is what paths demand of links above their
// bandwidth, each as much as one link carries. Moves that raise it are taken the less often the colder it is.
// Source: Hedera (Al-Fares et al., NSDI 2010), section 4.2.2; it cools by a hundredth at a time, as the code of Cohen
// et al., Routing for Large ML Models, does. Own: a temperature lasts as long as there are commodities; 300 of them.
#include <algorithm>
#include <cmath>

#include "assignment/registry.h"
#include "sim/interrupt.h"
#include "sim/random.h"

namespace rostam::assignment {

namespace {

constexpr int kTemperatures = 300;
constexpr double kCooling = 0.99;

class Draws {
 public:
  explicit Draws(uint64_t seed) : state_(mix(seed)) {}
  int32_t below(int32_t count) { return static_cast<int32_t>(next() % static_cast<uint64_t>(count)); }
  double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  uint64_t next() { return state_ = mix(state_); }
  uint64_t state_;
};

class Annealing : public Assigner {
 public:
  explicit Annealing(uint64_t seed) : seed_(seed) {}

  Assignment assign(const PathProblem& problem) override {
    Draws draws(seed_);
    LinkCounts counts(problem);
    Assignment chosen, best;
    for (int32_t number = 0; number < problem.size(); ++number) {
      chosen.push_back(draws.below(problem.num_paths(number)));
      counts.add(number, chosen.back());
    }
    best = chosen;
    double energy = 0, least = 0;  // above that of the first choice
    double temperature = 1;
    InterruptPoll poll;
    for (int step = 0; step < kTemperatures; ++step, temperature *= kCooling) {
      for (int32_t k = 0; k < problem.size(); ++k) {
        poll();
        const int32_t number = draws.below(problem.size()), path = draws.below(problem.num_paths(number));
        int32_t& now = chosen[static_cast<size_t>(number)];
        if (path == now) continue;
        const double change = change_of(problem, counts, number, now, path);
        if (change > 0 && draws.unit() >= std::exp(-change / temperature)) {
          counts.add(number, path, -1);
          counts.add(number, now);
          continue;
        }
        now = path;
        energy += change;
        if (energy >= least) continue;
        least = energy;
        best = chosen;
      }
    }
    return best;
  }

 private:
  // Moves the commodity, and returns how much more links are asked for than they carry.
  static double change_of(const PathProblem& problem, LinkCounts& counts, int32_t number, int32_t from, int32_t to) {
    const auto excess = [&](int32_t path) {
      double sum = 0;
      for (const int32_t link : problem.loaded_links(number, path)) sum += std::max(0.0, counts.on(link) - 1);
      return sum;
    };
    double change = -excess(from);
    counts.add(number, from, -1);
    change += excess(from) - excess(to);
    counts.add(number, to);
    return change + excess(to);
  }

  uint64_t seed_;
};

}  // namespace

std::unique_ptr<Assigner> make_annealing_assigner(const AssignerOptions& options) {
  return std::make_unique<Annealing>(options.seed);
}

}  // namespace rostam::assignment
