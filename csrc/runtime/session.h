// Session: runs a task graph over a network until its iteration time is steady. Owns clock, engine and state; a
// process may hold many. Life cycle: construct -> run() once -> read the result.
//
// Rules (MODEL B): a kernel or collective starts at max(ready + launch latency, stream free), ready being the end of
// what it waits for on other streams; a program's next template instance is made when the compute stream enters the
// one before, so communication streams may look one instance ahead.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "folding/folding.h"
#include "network/registry.h"
#include "routing/end_points.h"
#include "runtime/critical_path.h"
#include "runtime/mailbox.h"
#include "runtime/quiet_rings.h"
#include "sim/checked.h"
#include "workload/session_result.h"
#include "workload/task_graph.h"

namespace rostam::runtime {

using workload::Device;
using workload::SessionResult;
using workload::Task;
using workload::TimelineEntry;

struct SessionOptions {
  std::string fidelity = "flow";  // which engine, by its registered name
  SimTime launch_latency;
  SimTime min_collective_time;       // a collective's least duration; never per step
  double comm_compute_fraction = 0;  // of a device's compute that its running collectives take (MODEL B8)
  int32_t min_iterations = 2;
  int32_t max_iterations = 10;
  double steady_tolerance = 1e-3;
  uint64_t seed = 0;
  bool enable_folding = true;  // false: every device and every message is simulated
  std::vector<LinkEvent> events;
  std::vector<int32_t> timeline_devices;  // devices whose tasks are recorded
};

class Session : public network::NetworkClient {
 public:
  // Throws: ConfigError if the graph is not frozen or an option is out of range.
  Session(std::shared_ptr<const TaskGraph> graph, std::shared_ptr<routing::RouteTable> routes, SessionOptions options);

  // Throws: DeadlockError (up to ten blocked tasks), NoRouteError, InternalError for a broken conservation law.
  SessionResult run();

  void on_sent(uint64_t token) override;
  void on_delivered(uint64_t token) override;

 private:
  static constexpr network::RouteId kNoRoute = std::numeric_limits<network::RouteId>::max();

  // One task of a live instance. `cause` ended last among what the task waited for on other streams.
  struct TaskState {
    int32_t num_waiting = 0;
    bool is_done = false;
    SimTime ready;
    CriticalPath::Ref cause;
  };
  struct Instance {
    int32_t template_id = 0;
    int32_t microbatch = 0;
    int32_t iteration = 0;
    int32_t num_left = 0;
    std::vector<TaskState> tasks;
  };
  struct Stream {
    int64_t instance = 0;    // sequence number of the instance that holds its next task
    int32_t position = 0;    // index in that template's list for this stream
    bool is_busy = false;    // its next task waits for its launch or runs
    bool has_begun = false;  // it runs
    SimTime free_since;
    SimTime task_start;
    CriticalPath::Ref last;
  };
  // A message that may not start before its receiver has reached `step`.
  struct Deferred {
    int32_t message = 0;
    int32_t step = 0;
  };
  // One rank's part in one collective; exists from its join or the first early arrival.
  struct Participation {
    bool is_joined = false;
    bool is_step_started = false;
    int32_t step = 0;
    int32_t pending_sends = 0;
    int32_t ordered_arrivals = 0;
    int64_t chunks_sent = 0;
    std::vector<int64_t> arrivals;  // per step, where order is not enough: of this rank's whole class
    std::vector<Deferred> deferred;
    int64_t instance = 0;
    int32_t task = 0;
    SimTime joined;
    CriticalPath::Ref origin;  // the join that decided when the current step could start
    bool is_quiet = false;     // it goes without messages; through at quiet_end if all have joined
    SimTime quiet_end = SimTime::never();
    CriticalPath::Ref quiet_origin;
  };
  struct SlotState {
    uint32_t first_occurrence = 0;
    std::deque<Participation> queue;  // occurrences first_occurrence, +1, ...
    uint32_t num_joined = 0;
    int32_t last_peer = -1;
    network::RouteId last_route = kNoRoute;
  };
  // A collective of a device, from its join to its end, for the breakdown.
  struct Span {
    SimTime start, end;
    int32_t category = 0;
  };
  struct DeviceState {
    int64_t next_instance = 0;  // sequence number of the next instance to make
    int64_t first_live = 0;
    std::deque<std::unique_ptr<Instance>> live;
    std::vector<Stream> streams;
    std::vector<SlotState> slots;
    std::vector<int64_t> instances_left;  // per iteration
    // The running kernel: work left [ps at full speed] as of `work_since`; its end events of older versions are stale.
    double work_left_ps = 0;
    SimTime work_since;
    uint32_t work_version = 0;
    int32_t num_collectives = 0;  // that the device takes part in now
    std::vector<Span> spans;      // collectives that ended since the compute stream last began a task
  };
  struct Message {
    int32_t source = 0;
    int32_t destination = 0;  // simulated device
    int32_t peer = 0;         // device it stands for
    int32_t slot = 0;
    int32_t step = 0;
    uint32_t occurrence = 0;
    int64_t bytes = 0;
    int64_t instance = 0;  // send: the sender's instance and task
    int32_t task = 0;
    bool is_send = false;
    MailboxKey mailbox;  // send: where it arrives
    bool is_sending = false;
    network::TransferId transfer = 0;
    CriticalPath::Ref origin;
    int32_t category = 0;
    int32_t iteration = 0;
    bool is_synchronous = false;
    network::RouteId route = 0;
  };
  struct Arrival {
    CriticalPath::Ref origin;
    SimTime time;
  };
  struct Job {
    int32_t num_devices = 0;
    std::vector<int32_t> devices_left;  // per iteration
    std::vector<SimTime> ends;          // T_0 = start, T_1, ...
    bool is_finished = false;
    CriticalPath::Ref last;      // task that ended an instance last
    CriticalPath::Ref ended_by;  // task that ended the last iteration
  };
  struct Traffic {
    int64_t sent_bytes = 0, received_bytes = 0, num_messages = 0;
  };
  using Handler = void (Session::*)(uint64_t);
  class Events : public EventHandler {
   public:
    Events(Session& owner, Handler handler) : owner_(owner), handler_(handler) {}
    void on_event(uint64_t payload) override { (owner_.*handler_)(payload); }

   private:
    Session& owner_;
    Handler handler_;
  };

  // session.cpp: set-up, instances and streams
  void set_up();
  void start_device(uint64_t device);
  void apply_event(uint64_t index);
  void check_options() const;
  void make_instance(int32_t device);
  Instance& instance_of(int32_t device, int64_t sequence);
  void try_stream(int32_t device, int32_t stream);
  void begin_task(uint64_t device_and_stream);
  void run_kernel(int32_t device);
  void change_collectives(int32_t device, int32_t change);
  double compute_speed(int32_t device) const;
  void end_compute(uint64_t device_and_version);
  void finish_task(int32_t device, int64_t sequence, int32_t task, SimTime start, SimTime end,
                   const CriticalPath::Ref& parent);
  void release_dependents(int32_t device, int64_t sequence, int32_t task, const CriticalPath::Ref& node);
  void retire_instances(int32_t device);
  void end_instance(int32_t device, const Instance& instance);
  void end_iteration(int32_t job, int32_t iteration);
  const Device& device_of(int32_t simulated) const { return graph_->devices[folding_.representative[simulated]]; }

  // messages.cpp: collectives and point-to-point messages
  void join_collective(int32_t device, int64_t sequence, int32_t task, CriticalPath::Ref cause);
  Participation& participation(int32_t device, int32_t slot, uint32_t occurrence);
  void advance(int32_t device, int32_t slot, uint32_t occurrence);
  void start_step(int32_t device, int32_t slot, uint32_t occurrence);
  void end_send(int32_t device, int32_t slot, uint32_t occurrence);
  void complete_collective(uint64_t device_and_slot);
  void send_message(int32_t message);
  void start_send(int32_t device, int64_t sequence, int32_t task, const CriticalPath::Ref& cause);
  void await_message(int32_t device, int64_t sequence, int32_t task);
  int32_t new_message();
  Traffic& traffic_of(int32_t device, int32_t iteration, int32_t category);
  int64_t wire_bytes(int64_t bytes) const { return route_table_->wire_bytes(bytes); }
  network::RouteId route_of(int32_t device, int32_t slot, int32_t peer);
  routing::Route make_route(int32_t device, int32_t slot, int32_t peer);
  void count_on_wire(int32_t source, int32_t destination, double bytes);

  // quiet_messages.cpp: collectives that go without messages until somebody else uses their links
  void join_ring(int32_t device, int32_t slot, uint32_t occurrence, const QuietRings::Rank& rank);
  QuietRings::Exchange exchange_of(int32_t device, int32_t slot, const Participation& part);
  void end_quietly(uint64_t device_and_slot);
  void disturb(int32_t ring);
  void resume(int32_t ring, uint32_t occurrence);
  int32_t new_ring_message(int32_t ring, uint32_t occurrence, int32_t position, int32_t step);

  // accounting.cpp: breakdown, conservation, results
  void account_compute(int32_t device, SimTime start, SimTime end);
  void account_idle(int32_t device, SimTime from, const TaskState& task, SimTime start);
  void account_unsent(int32_t device, SimTime from, SimTime to);
  void account(int32_t device, int32_t bucket, SimTime from, SimTime to);
  void check_conservation() const;
  void check_accelerators();
  [[noreturn]] void throw_deadlock() const;
  void throw_if_endless() const;
  [[noreturn]] void throw_sent_twice(const MailboxKey& key) const;
  std::string describe_current() const;
  std::string describe(int32_t device, const Instance& instance, int32_t task) const;
  SimTime last_end(int32_t device) const;
  void snapshot_links(std::vector<double>& bytes, std::vector<double>& busy) const;
  std::vector<TimelineEntry> expand_timeline() const;
  SessionResult collect();

  std::shared_ptr<const TaskGraph> graph_;
  std::shared_ptr<routing::RouteTable> route_table_;
  SessionOptions options_;
  Folding folding_;
  EventQueue queue_;
  CriticalPath path_;
  std::unique_ptr<network::Network> network_;
  std::unique_ptr<QuietRings> quiet_rings_;  // null if every message is to be simulated
  Events device_starts_, link_events_, begins_, compute_ends_, collective_ends_, quiet_ends_, late_arrivals_;
  std::vector<DeviceState> devices_;
  std::vector<Job> jobs_;
  std::vector<Message> messages_;
  std::vector<int32_t> free_messages_;
  routing::EndPoints end_points_;
  std::vector<network::RouteId> routes_;         // per channel
  std::vector<std::vector<int32_t>> crossings_;  // per route: quiet rings of others whose links it uses
  std::unordered_map<MailboxKey, Arrival, MailboxHash> arrived_;                      // before its recv was made
  std::unordered_map<MailboxKey, std::pair<int64_t, int32_t>, MailboxHash> awaited_;  // recv made before arrival
  std::vector<collectives::Transfer> transfers_;
  bool has_run_ = false;
  int32_t current_device_ = -1;  // whose task is looked at: for errors of arithmetic
  int32_t current_stream_ = 0;

  // Accounting, by iteration.
  std::vector<std::vector<Traffic>> traffic_;  // [iteration][job * categories + category]
  struct Participants {
    int64_t chunks_sent = 0, num_ranks = 0;
  };
  std::vector<std::vector<Participants>> completed_;  // [iteration][schedule], ended participations
  std::vector<std::vector<int64_t>> breakdown_;       // [iteration window][device * num_buckets + bucket], ps
  std::vector<double> wire_sent_, wire_received_;     // per simulated device, of the simulated plane, all iterations
  std::vector<double> link_bytes_before_, link_busy_before_;
  std::vector<double> link_bytes_now_, link_busy_now_;
  std::vector<uint8_t> is_recorded_;
  std::vector<TimelineEntry> timeline_;
};

}  // namespace rostam::runtime
