#include <utility>

#include "circuits/planner.h"
#include "sim/errors.h"

namespace rostam::circuits {

namespace {

class OcsPlanner : public CircuitPlanner {
 public:
  OcsPlanner(PairList pairs, const OcsPorts& ports) : pairs_(std::move(pairs)), ports_(ports) {
    ports_.may_leave_out = true;
  }

  Setting plan(const std::vector<double>& num_bytes, const Setting& held) const override {
    Demand demand;
    demand.num_accelerators = pairs_.num_accelerators;
    for (int32_t p = 0; p < pairs_.size(); ++p) {
      if (num_bytes[p] <= 0 && !ports_.can_relay) continue;
      demand.src.push_back(pairs_.src[p]);
      demand.dst.push_back(pairs_.dst[p]);
      demand.num_bytes.push_back(num_bytes[p]);
    }
    std::vector<OcsCircuit> before;
    before.reserve(static_cast<size_t>(held.size()));
    for (const Circuit one : held) before.push_back({pairs_.src[one.pair], pairs_.dst[one.pair], one.channel});
    const OcsCircuits found = set_ocs_circuits(demand, ports_, before);
    std::vector<int32_t> pair_of;  // of the pairs found
    int32_t p = 0;
    for (size_t i = 0; i < found.src.size(); ++i) {
      while (p < pairs_.size() && (pairs_.src[p] != found.src[i] || pairs_.dst[p] != found.dst[i])) ++p;
      ROSTAM_CHECK(p < pairs_.size(),
                   "a circuit from accelerator " << found.src[i] << " to " << found.dst[i] << " is of no pair");
      pair_of.push_back(p);
    }
    std::vector<Circuit> circuits;
    circuits.reserve(found.circuit_pair.size());
    for (size_t c = 0; c < found.circuit_pair.size(); ++c) {
      circuits.push_back({pair_of[found.circuit_pair[c]], found.circuit_ocs[c]});
    }
    return Setting(std::move(circuits));
  }

  double most_ratio(const std::vector<double>& num_bytes) const override {
    return ports_.num_ocs / busiest_end(pairs_, num_bytes);
  }

 private:
  PairList pairs_;
  OcsPorts ports_;
};

}  // namespace

std::unique_ptr<CircuitPlanner> make_ocs_planner(PairList pairs, const OcsPorts& ports) {
  return std::make_unique<OcsPlanner>(std::move(pairs), ports);
}

}  // namespace rostam::circuits
