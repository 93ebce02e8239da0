// Faults: which parts of a running network have failed, and what that leaves of its links. Links have the capacity that
// they are set to, or none while they, or what they end at, have failed.
// Example: faults.fail({PartKind::kSwitch, 2}) returns the links of switch 2, which carry nothing from now on.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "control/control_plane.h"
#include "routing/route_table.h"

namespace rostam::runtime {

class Faults {
 public:
  explicit Faults(const routing::RouteTable& routes);

  int32_t num_accelerators() const { return num_accelerators_; }

  // Whether an accelerator, or all of its links out or in, have failed.
  bool is_failed(int32_t accelerator) const;

  // Failures in their order: those of a run are numbered by it. A part that has failed may fail again before it is
  // repaired; it works once each of its failures is over.
  int32_t num_failures() const { return num_failures_; }
  // The first failure of those that a link, or anything, suffers from now; -1 without any.
  int32_t first_failure_of(int32_t link) const;
  int32_t first_failure() const;
  // The failure that holds an accelerator: the first of its own, or the one without which one of its links out, or in,
  // would work; of several the first; -1 if it works.
  int32_t failure_of(int32_t accelerator) const;

  // The links that suffer from it. Throws: ConfigError for a part that does not exist.
  std::vector<int32_t> fail(const control::Part& part);
  // The same of a repair, and the number of the failure that it ends, the first of the part's.
  // Throws: ConfigError for a part that does not exist or has not failed.
  std::pair<std::vector<int32_t>, int32_t> repair(const control::Part& part);

  // What has failed in the planes of a class, in addition to what had before the run; a cable with either direction.
  fabric::Failures failures_of(int32_t plane_class) const;

  // What a link can carry now [bytes/s].
  double capacity(int32_t link) const { return links_[link].num_failures > 0 ? 0 : links_[link].bytes_per_s; }

  // Whether any of them, not removed, can carry nothing. Cost: O(links).
  bool has_dark_links() const;

  // REQUIRES: the link exists.
  void set_capacity(int32_t link, double bytes_per_s) { links_[link].bytes_per_s = bytes_per_s; }
  // Between accelerators; numbered on.
  void add_link(int32_t src, int32_t dst, double bytes_per_s);
  void remove_link(int32_t link) { links_[link].is_removed = true; }

 private:
  using Key = std::tuple<control::PartKind, int32_t, int32_t>;
  struct Link {
    int32_t src = 0, dst = 0;  // vertices of their plane
    int32_t plane_class = 0;
    double bytes_per_s = 0;
    int32_t num_failures = 0;
    bool is_removed = false;  // or failed before the run
  };
  static Key key_of(const control::Part& part);
  std::vector<int32_t> links_of(const control::Part& part) const;
  int32_t failure_of_all(int32_t accelerator, bool outgoing) const;

  int32_t num_accelerators_;
  std::vector<int32_t> num_switches_;  // per class of planes
  std::vector<Link> links_;
  routing::IdLists cables_;                     // of links_
  std::vector<uint8_t> is_lost_;                // accelerators that failed before the run
  std::map<Key, std::vector<int32_t>> failed_;  // and the numbers of its failures
  int32_t num_failures_ = 0;
};

}  // namespace rostam::runtime
