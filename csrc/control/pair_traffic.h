// PairTraffic: what every pair of accelerators hands to the network, as a controller of circuits sees it, and estimates
// of what it will.
// Example: traffic.on_start(3, 1e6, now); traffic.backlog(plane)[3].
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "circuits/planner.h"
#include "control/control_plane.h"

namespace rostam::control {

enum class Estimator : uint8_t { kIteration, kLastWindow, kBlend, kBacklog, kActive, kPerfect };

// Throws: ConfigError listing the names.
Estimator estimator_of(const std::string& name);

// (name, one line for lists) of each.
std::vector<std::pair<std::string, std::string>> estimators();

// A message of a pair, when it was handed over. burst: counts the times before that nothing was under way. pause: how
// long that was before this message, 0 within a burst.
struct PairMessage {
  SimTime time;
  int32_t pair = 0;
  int32_t burst = 0;
  double num_bytes = 0;
  SimTime pause;
};

class PairTraffic {
 public:
  // iteration_bytes: of each pair in an iteration. known: messages that are known before, ascending. server_size:
  // accelerators, numbered consecutively, that are one end of a pair. rail_size: accelerators of a server whose i-th
  // ones are a rail each; a message to another server is of the pair that ends where it does and begins at its own
  // server's accelerator on that rail.
  PairTraffic(const circuits::PairList& pairs, std::vector<double> iteration_bytes, std::vector<PairMessage> known,
              int32_t server_size = 1, int32_t rail_size = 1);

  // The number of the pair that a message between two accelerators is of, -1 for none.
  int32_t find(int32_t src, int32_t dst) const;

  void on_start(int32_t pair, double num_bytes, SimTime now);
  void on_end(int32_t pair, SimTime now);
  // The messages since the last call are an iteration of the pairs from these accelerators. Returns them, ascending.
  std::vector<PairMessage> end_iteration(const std::vector<int32_t>& accelerators, SimTime now);
  // What these accelerators have sent since is of no whole iteration.
  void forget(const std::vector<int32_t>& accelerators);

  const std::vector<double>& iteration_bytes() const { return iteration_bytes_; }
  int64_t num_active(int32_t pair) const { return num_active_[pair]; }
  int64_t num_started() const { return num_started_; }

  std::vector<double> backlog(const ControlPlane& plane) const;
  // Bytes of every pair. backlog: bytes left now. The last window ends, and the next begins, with each call for it.
  std::vector<double> estimate(Estimator by, const std::vector<double>& backlog, SimTime now, SimTime window);

 private:
  // Those of the log's messages, which go from it.
  std::vector<PairMessage> take_from_log(const std::vector<int32_t>& accelerators);
  void add_coming(SimTime now, SimTime window, std::vector<double>& demand) const;

  int32_t num_accelerators_;  // servers, where those are the ends of pairs
  int32_t server_size_, rail_size_;
  std::vector<int32_t> src_, dst_;   // of pairs, ascending
  std::vector<int32_t> first_from_;  // the first pair from each, and the end
  std::vector<double> iteration_bytes_;
  double iteration_sum_;
  std::vector<PairMessage> known_;
  std::vector<double> left_, offered_;  // of the last window
  std::vector<double> recent_;          // of all windows, the later the more
  std::vector<int64_t> num_active_;
  int64_t num_started_ = 0, num_under_way_ = 0;
  int32_t burst_ = 0;
  SimTime idle_since_;
  std::vector<PairMessage> log_;  // since the last iterations' ends
  // By the first accelerator of a job: its last iteration, times counted from its begin, and when the present one
  // began.
  struct Iteration {
    SimTime begin;
    std::vector<PairMessage> messages;
  };
  std::map<int32_t, Iteration> last_;
};

}  // namespace rostam::control
