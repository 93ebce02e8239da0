// slim_fly: the MMS graph of diameter 2 over GF(q), q = 4 w + delta a prime power >= 3, delta = -1, 0 or 1.
// Switches (0, x, y), then (1, m, c), row-major. (0, x, y) joins (0, x, y') where y - y' is in X, (1, m, c) joins
// (1, m, c') where c - c' is in X', and (0, x, y) joins (1, m, c) where y = m x + c.
// Numbering: (0, x, y) is switch x q + y, (1, m, c) is q^2 + m q + c.
// Source: McKay, Miller, Siran 1998, as Besta and Hoefler give it ("Slim Fly", SC 2014, section II-B); generator sets
// of the three deltas: Hafner, "Geometric realisation of the graphs of McKay-Miller-Siran", 2004.
#include <utility>

#include "fabric/galois.h"
#include "fabric/registry.h"
#include "fabric/routers.h"

namespace rostam::fabric {

namespace {

class MmsGraph : public RouterDistance {
 public:
  MmsGraph(int32_t q, int32_t per_switch) : RouterDistance(2 * q * q, per_switch), field_(q) {
    in_x_.assign(static_cast<size_t>(q), 0);
    in_x2_.assign(static_cast<size_t>(q), 0);
    const int32_t delta = q % 4 == 3 ? -1 : q % 4, w = (q - delta) / 4;
    // X: even powers of a primitive element; of delta = -1 those below 2 w, and odd ones from there on. X' = xi X.
    for (int32_t k = 0; k < (q - delta) / 2; ++k) {
      const int32_t exponent = delta == -1 && k >= w ? 2 * k - 1 : 2 * k;
      in_x_[static_cast<size_t>(field_.power(exponent % (q - 1)))] = 1;
      in_x2_[static_cast<size_t>(field_.power((exponent + 1) % (q - 1)))] = 1;
    }
  }

  bool is_joined(int32_t a, int32_t b) const {
    const int32_t q = field_.size();
    if (a > b) std::swap(a, b);
    const int32_t x = a / q % q, y = a % q, m = b / q % q, c = b % q;
    const bool is_upper = a >= q * q;
    if (is_upper == (b >= q * q)) {
      return x == m && (is_upper ? in_x2_ : in_x_)[static_cast<size_t>(field_.difference(y, c))] != 0;
    }
    return y == field_.sum(field_.product(m, x), c);
  }

  int32_t between(int32_t a, int32_t b) const override { return a == b ? 0 : is_joined(a, b) ? 1 : 2; }
  int32_t widest() const override { return 2; }

 private:
  GaloisField field_;
  std::vector<uint8_t> in_x_, in_x2_;  // element -> whether it is in X, in X'
};

// A virtual channel for each cable between switches: two on shortest paths, up to four around failures.
class ChannelPerHop : public PathRule {
 public:
  explicit ChannelPerHop(int32_t first_switch) : first_switch_(first_switch) {}
  int32_t num_phases() const override { return 5; }
  int32_t next_phase(int32_t phase, const Link& link) const override {
    if (link.src < first_switch_ || link.dst < first_switch_) return phase;
    return phase + 1 < num_phases() ? phase + 1 : -1;
  }

 private:
  int32_t first_switch_;
};

}  // namespace

Blueprint design_slim_fly(const Params& params) {
  const auto graph = std::make_shared<MmsGraph>(params.integer("q"), params.integer("terminals_per_switch"));
  Blueprint plan = design_routers("slim_fly", graph->num_switches(), params.integer("terminals_per_switch"), params);
  for (int32_t a = 0; a < graph->num_switches(); ++a) {
    for (int32_t b = a + 1; b < graph->num_switches(); ++b) {
      if (!graph->is_joined(a, b)) continue;
      plan.add_cable(graph->vertex(a), graph->vertex(b), params.rate("link_bandwidth_bytes_per_s"),
                     params.time("link_latency_s"));
    }
  }
  plan.distance = graph;
  plan.turn_rule = std::make_shared<ChannelPerHop>(graph->vertex(0));
  return plan;
}

}  // namespace rostam::fabric
