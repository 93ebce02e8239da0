// adaptive routing: the minimal paths of spray, over which engines divide every message as rates are max-min fair and,
// of such divisions, the sum of squared link loads least, anew with each change (MODEL F18). A route's shares are
// spray's, from which that starts.
#include <optional>
#include <string>
#include <utility>

#include "routing/dependencies.h"
#include "routing/registry.h"

namespace rostam::routing {

namespace {

class AdaptivePolicy : public RoutePolicy {
 public:
  AdaptivePolicy(std::shared_ptr<const fabric::Fabric> fabric, const PolicyOptions& options)
      : minimal_(make_spray_policy(std::move(fabric), {options.message_overhead, false})) {}

  Route route(int32_t src, int32_t dst, const RouteQuery& query) const override {
    Route all = minimal_->route(src, dst, {query.hash, true, query.backlog, query.num_bytes, query.for_packets});
    all.is_adaptive = true;
    return all;
  }
  Route every_path(int32_t src, int32_t dst) const override { return minimal_->every_path(src, dst); }

  // Depends on the pair alone, but what engines make of it does not.
  bool is_hash_free() const override { return false; }
  bool is_adaptive() const override { return true; }
  const fabric::Fabric& fabric() const override { return minimal_->fabric(); }
  const EngineLinks& links() const override { return minimal_->links(); }
  int32_t num_virtual_channels() const override { return minimal_->num_virtual_channels(); }

  // Of larger fabrics only runs on packets say so, of the paths that they take.
  std::string note() const override {
    const std::vector<int32_t> members = fabric().healthy_accelerators();
    if (members.size() > kMostChecked) return {};
    if (!may_lock_) may_lock_ = !find_dependencies(*minimal_, members, ChannelScheme::kPhases).cycle.empty();
    if (!*may_lock_) return {};
    return "packets of routing adaptive may block each other for good on fabric " + fabric().name() +
           " once buffers are full (fidelity=packet); those of turns_adaptive cannot";
  }

  // Of the first guess: what estimates start from. What messages put on links depends on what else is there, in time.
  void add_loads(const Flows& flows, std::vector<double>& loads) const override { minimal_->add_loads(flows, loads); }
  void add_uniform_loads(const std::vector<int32_t>& members, double num_bytes,
                         std::vector<double>& loads) const override {
    minimal_->add_uniform_loads(members, num_bytes, loads);
  }

 private:
  static constexpr size_t kMostChecked = 128;  // accelerators: pairs x paths in some milliseconds

  std::unique_ptr<RoutePolicy> minimal_;
  mutable std::optional<bool> may_lock_;  // not known yet
};

}  // namespace

std::unique_ptr<RoutePolicy> make_adaptive_policy(std::shared_ptr<const fabric::Fabric> fabric,
                                                  const PolicyOptions& options) {
  return std::make_unique<AdaptivePolicy>(std::move(fabric), options);
}

}  // namespace rostam::routing
