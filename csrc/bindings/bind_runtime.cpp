// Task graphs go in as arrays, one session runs without the GIL, arrays of integers come out.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/layout.h"
#include "bindings/work.h"
#include "control/registry.h"
#include "runtime/flow_run.h"
#include "runtime/session.h"
#include "workload/freeze.h"
#include "workload/task_graph.h"

namespace py = pybind11;

namespace rostam::bindings {

namespace {

using workload::PathNode;
using workload::SessionResult;
using workload::TaskGraph;
using workload::TimelineEntry;
template <typename T>
using Array = py::array_t<T, py::array::c_style | py::array::forcecast>;

template <typename T>
py::array_t<T> to_array(const std::vector<T>& values) {
  return py::array_t<T>(static_cast<py::ssize_t>(values.size()), values.data());
}

// (name, parameters) of each.
using ControllerList = std::vector<std::pair<std::string, std::map<std::string, control::ParamValue>>>;

runtime::Controllers make_controllers(const ControllerList& named) {
  runtime::Controllers made;
  for (const auto& [name, parameters] : named) made.push_back(control::make_controller(name, parameters));
  return made;
}

void check_lengths(const char* what, py::ssize_t length, const std::vector<py::ssize_t>& others) {
  for (const py::ssize_t other : others) {
    if (other != length) ROSTAM_THROW(ConfigError, what << " got columns of " << length << " and " << other << " rows");
  }
}

void check_span(const char* what, py::ssize_t task, int64_t first, int64_t last, py::ssize_t length) {
  if (first >= 0 && first <= last && last <= length) return;
  ROSTAM_THROW(ConfigError,
               what << " of task " << task << " are entries " << first << " to " << last << " of " << length);
}

void check_origin(const TaskGraph& graph, const workload::Origin& origin) {
  const bool is_known = origin.template_id >= 0 && origin.template_id < static_cast<int32_t>(graph.templates.size());
  if (is_known && origin.task >= 0 && origin.ahead >= 0 &&
      origin.task < static_cast<int32_t>(graph.templates[origin.template_id].tasks.size())) {
    return;
  }
  ROSTAM_THROW(ConfigError, "a task's origin is task " << origin.task << " of template " << origin.template_id << ", "
                                                       << origin.ahead << " micro-batches ahead; there is none such");
}

int32_t add_template(TaskGraph& graph, const Array<int8_t>& kind, const Array<int32_t>& slot,
                     const Array<int32_t>& category, const Array<int32_t>& schedule, const Array<int32_t>& channel,
                     const Array<int64_t>& num_bytes, const Array<int64_t>& duration_ps,
                     const Array<int64_t>& dep_offset, const Array<int32_t>& dep, const Array<int64_t>& kernel_offset,
                     const Array<int64_t>& kernel_ps, const Array<bool>& is_awaited_by_host,
                     const Array<int32_t>& protocol, const Array<double>& variation, const Array<int32_t>& origin,
                     const Array<int64_t>& issue_ps, const Array<int32_t>& taken_ppm, const Array<int32_t>& queue) {
  graph.check_open();
  const bool has_kernels = kernel_offset.size() > 0, has_waits = is_awaited_by_host.size() > 0;
  if (has_kernels) check_lengths("add_template", kind.size(), {kernel_offset.size() - 1});
  if (has_waits) check_lengths("add_template", kind.size(), {is_awaited_by_host.size()});
  check_lengths("add_template", kind.size(),
                {slot.size(), category.size(), schedule.size(), channel.size(), num_bytes.size(), duration_ps.size(),
                 dep_offset.size() - 1});
  if (protocol.size() > 0) check_lengths("add_template", kind.size(), {protocol.size()});
  if (issue_ps.size() > 0) check_lengths("add_template", kernel_ps.size(), {issue_ps.size()});
  if (taken_ppm.size() > 0) check_lengths("add_template", kind.size(), {taken_ppm.size()});
  const bool has_queues = queue.size() > 0;
  if (has_queues) {
    check_lengths("add_template", kind.size(), {queue.ndim() == 2 ? queue.shape(0) : -1});
    if (queue.shape(1) != 3) ROSTAM_THROW(ConfigError, "queues have " << queue.shape(1) << " entries each, not 3");
  }
  const bool is_varied = variation.size() > 0;
  if (is_varied) check_lengths("add_template", kind.size(), {variation.size()});
  const bool has_origins = origin.size() > 0;
  if (has_origins) {
    check_lengths("add_template", kind.size(), {origin.ndim() == 2 ? origin.shape(0) : -1});
    if (origin.shape(1) != 3) ROSTAM_THROW(ConfigError, "origins have " << origin.shape(1) << " entries each, not 3");
  }
  workload::Template body;
  for (py::ssize_t t = 0; t < kind.size(); ++t) {
    workload::Task task;
    task.kind = static_cast<workload::TaskKind>(kind.at(t));
    task.slot = slot.at(t);
    task.category = category.at(t);
    task.schedule = schedule.at(t);
    task.channel = channel.at(t);
    task.bytes = num_bytes.at(t);
    if (protocol.size() > 0) task.protocol = protocol.at(t);
    task.duration = SimTime::from_ps(duration_ps.at(t));
    if (is_varied) task.variation = variation.at(t);
    if (has_origins) {
      task.origin = {origin.at(t, 0), origin.at(t, 1), origin.at(t, 2)};
      check_origin(graph, task.origin);
    }
    check_span("dependencies", t, dep_offset.at(t), dep_offset.at(t + 1), dep.size());
    for (int64_t k = dep_offset.at(t); k < dep_offset.at(t + 1); ++k) task.deps.push_back(dep.at(k));
    if (has_kernels) {
      check_span("kernels", t, kernel_offset.at(t), kernel_offset.at(t + 1), kernel_ps.size());
      for (int64_t k = kernel_offset.at(t); k < kernel_offset.at(t + 1); ++k) {
        task.kernels.push_back(SimTime::from_ps(kernel_ps.at(k)));
        if (issue_ps.size() > 0) task.issues.push_back(SimTime::from_ps(issue_ps.at(k)));
      }
    } else if (task.kind == workload::TaskKind::kCompute && !(has_queues && queue.at(t, 2) != 0)) {
      task.kernels.push_back(task.duration);
    }
    if (has_queues) {
      task.stream = queue.at(t, 0);
      task.order = queue.at(t, 1);
      task.is_mark = queue.at(t, 2) != 0;
    }
    task.is_awaited_by_host = has_waits && is_awaited_by_host.at(t);
    if (taken_ppm.size() > 0) task.taken_ppm = taken_ppm.at(t);
    body.tasks.push_back(std::move(task));
  }
  graph.templates.push_back(std::move(body));
  return static_cast<int32_t>(graph.templates.size()) - 1;
}

int32_t add_protocol(TaskGraph& graph, double wire_overhead, int64_t server_hop_ps, int64_t network_hop_ps,
                     double server_rate, double region_rate) {
  graph.check_open();
  if (!(wire_overhead > 0) || server_hop_ps < 0 || network_hop_ps < 0 || !(server_rate > 0) || !(region_rate > 0)) {
    ROSTAM_THROW(ConfigError, "a protocol with wire overhead " << wire_overhead << ", hops of " << server_hop_ps
                                                               << " and " << network_hop_ps << " ps and rates of "
                                                               << server_rate << " and " << region_rate
                                                               << " bytes/s; hops must be >= 0, others > 0");
  }
  graph.protocols.push_back(
      {wire_overhead, SimTime::from_ps(server_hop_ps), SimTime::from_ps(network_hop_ps), region_rate, server_rate});
  return static_cast<int32_t>(graph.protocols.size()) - 1;
}

// Without block_offset all entries are one block that runs once.
int32_t add_program(TaskGraph& graph, const Array<int32_t>& template_id, const Array<int32_t>& microbatch,
                    const Array<int32_t>& stride, const Array<int64_t>& block_offset, const Array<int64_t>& count) {
  graph.check_open();
  check_lengths("add_program", template_id.size(), {microbatch.size()});
  const bool is_explicit = block_offset.size() == 0;
  if (!is_explicit) check_lengths("add_program", template_id.size(), {stride.size()});
  check_lengths("add_program", is_explicit ? 0 : block_offset.size() - 1, {count.size()});
  std::vector<workload::ProgramBlock> blocks(is_explicit ? 1 : static_cast<size_t>(count.size()));
  for (size_t b = 0; b < blocks.size(); ++b) {
    const auto index = static_cast<py::ssize_t>(b);
    const int64_t first = is_explicit ? 0 : block_offset.at(index);
    const int64_t last = is_explicit ? template_id.size() : block_offset.at(index + 1);
    if (first < 0 || first > last || last > template_id.size()) {
      ROSTAM_THROW(ConfigError, "block " << b << " of a program is entries " << first << " to " << last << " of "
                                         << template_id.size());
    }
    blocks[b].count = is_explicit ? 1 : count.at(index);
    for (int64_t k = first; k < last; ++k) {
      blocks[b].entries.push_back({template_id.at(k), microbatch.at(k), is_explicit ? 0 : stride.at(k)});
    }
  }
  graph.programs.emplace_back(std::move(blocks));
  return static_cast<int32_t>(graph.programs.size()) - 1;
}

// slots has shape (devices, slots, 3): group, rank, peer device; -1 where unused.
void add_devices(TaskGraph& graph, const Array<int32_t>& accelerator, const Array<int32_t>& program,
                 const Array<int32_t>& job, const Array<double>& slowdown, const Array<int64_t>& start_ps,
                 const Array<int32_t>& slots) {
  graph.check_open();
  check_lengths(
      "add_devices", accelerator.size(),
      {program.size(), job.size(), slowdown.size(), start_ps.size(), slots.ndim() == 3 ? slots.shape(0) : -1});
  if (slots.shape(2) != 3) ROSTAM_THROW(ConfigError, "slots have " << slots.shape(2) << " entries each, not 3");
  for (py::ssize_t d = 0; d < accelerator.size(); ++d) {
    workload::Device device;
    device.accelerator = accelerator.at(d);
    device.program = program.at(d);
    device.job = job.at(d);
    device.slowdown = slowdown.at(d);
    device.start = SimTime::from_ps(start_ps.at(d));
    for (py::ssize_t s = 0; s < slots.shape(1); ++s) {
      device.slots.push_back({slots.at(d, s, 0), slots.at(d, s, 1), slots.at(d, s, 2)});
    }
    graph.devices.push_back(std::move(device));
  }
}

py::dict path_arrays(const std::vector<PathNode>& nodes) {
  std::vector<int64_t> start, end;
  std::vector<int32_t> device, template_id, task, microbatch;
  std::vector<uint8_t> is_host, is_hold;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    if (node->is_join) continue;
    start.push_back(node->start.ps());
    end.push_back(node->end.ps());
    device.push_back(node->device);
    template_id.push_back(node->template_id);
    task.push_back(node->task);
    microbatch.push_back(node->microbatch);
    is_host.push_back(node->is_host ? 1 : 0);
    is_hold.push_back(node->is_hold ? 1 : 0);
  }
  using namespace py::literals;
  return py::dict("start_ps"_a = to_array(start), "end_ps"_a = to_array(end), "device"_a = to_array(device),
                  "template"_a = to_array(template_id), "task"_a = to_array(task),
                  "microbatch"_a = to_array(microbatch), "is_host"_a = to_array(is_host),
                  "is_hold"_a = to_array(is_hold));
}

py::dict timeline_arrays(const std::vector<TimelineEntry>& entries) {
  std::vector<int64_t> start, end, host_wait;
  std::vector<int32_t> device, stream, template_id, task, microbatch, iteration;
  for (const TimelineEntry& entry : entries) {
    start.push_back(entry.start.ps());
    end.push_back(entry.end.ps());
    host_wait.push_back(entry.host_wait.ps());
    device.push_back(entry.device);
    stream.push_back(entry.stream);
    template_id.push_back(entry.template_id);
    task.push_back(entry.task);
    microbatch.push_back(entry.microbatch);
    iteration.push_back(entry.iteration);
  }
  using namespace py::literals;
  return py::dict("start_ps"_a = to_array(start), "end_ps"_a = to_array(end), "device"_a = to_array(device),
                  "stream"_a = to_array(stream), "template"_a = to_array(template_id), "task"_a = to_array(task),
                  "microbatch"_a = to_array(microbatch), "iteration"_a = to_array(iteration),
                  "host_wait_ps"_a = to_array(host_wait));
}

// Rows: categories, then iterations; columns: count, total_ps, longest_ps, sent_bytes.
py::array_t<double> collective_array(const workload::JobResult& job) {
  const auto num_iterations = static_cast<py::ssize_t>(job.iteration_ends.size()) - 1;
  const auto num_rows = static_cast<py::ssize_t>(job.collectives.size());
  py::array_t<double> table({num_iterations > 0 ? num_rows / num_iterations : 0, num_iterations, py::ssize_t{4}});
  double* cell = table.mutable_data();
  for (const workload::CollectiveTimes& one : job.collectives) {
    *cell++ = static_cast<double>(one.count);
    *cell++ = one.total_ps;
    *cell++ = static_cast<double>(one.longest_ps);
    *cell++ = static_cast<double>(one.sent_bytes);
  }
  return table;
}

py::list restart_list(const workload::JobResult& job) {
  using namespace py::literals;
  py::list restarts;
  for (const workload::Restart& one : job.restarts) {
    restarts.append(py::dict("cut_ps"_a = one.cut.ps(), "start_ps"_a = one.start.ps(),
                             "from_iteration"_a = one.from_iteration, "sent_bytes"_a = one.sent_bytes,
                             "received_bytes"_a = one.received_bytes, "lost_bytes"_a = one.lost_bytes,
                             "accelerators"_a = one.accelerators));
  }
  return restarts;
}

// Rows: iteration, begin and end [ps], number of the failure.
py::array_t<int64_t> stall_array(const workload::JobResult& job) {
  py::array_t<int64_t> table({static_cast<py::ssize_t>(job.stalls.size()), py::ssize_t{4}});
  int64_t* cell = table.mutable_data();
  for (const workload::Stall& one : job.stalls) {
    for (const int64_t value : {int64_t{one.iteration}, one.begin.ps(), one.end.ps(), int64_t{one.failure}}) {
      *cell++ = value;
    }
  }
  return table;
}

// Rows: kind of part, its number, class of planes, time [ps].
py::array_t<int64_t> failed_array(const SessionResult& result) {
  py::array_t<int64_t> table({static_cast<py::ssize_t>(result.failed.size()), py::ssize_t{4}});
  int64_t* cell = table.mutable_data();
  for (const workload::FailedPart& one : result.failed) {
    for (const int64_t value : {int64_t{one.kind}, int64_t{one.id}, int64_t{one.plane_class}, one.time.ps()}) {
      *cell++ = value;
    }
  }
  return table;
}

// What each controller said: arrays and texts by name.
py::list report_list(const std::vector<workload::Report>& reports) {
  py::list all;
  for (const workload::Report& report : reports) {
    py::dict one;
    for (const auto& [name, value] : report) {
      if (const auto* integers = std::get_if<std::vector<int64_t>>(&value)) {
        one[name.c_str()] = to_array(*integers);
      } else if (const auto* numbers = std::get_if<std::vector<double>>(&value)) {
        one[name.c_str()] = to_array(*numbers);
      } else {
        one[name.c_str()] = std::get<std::string>(value);
      }
    }
    all.append(one);
  }
  return all;
}

py::list job_list(const SessionResult& result) {
  using namespace py::literals;
  py::list jobs;
  for (const workload::JobResult& job : result.jobs) {
    std::vector<int64_t> ends;
    for (const SimTime end : job.iteration_ends) ends.push_back(end.ps());
    jobs.append(py::dict("iteration_ends_ps"_a = to_array(ends), "is_steady"_a = job.is_steady,
                         "num_averaged"_a = job.num_averaged, "collectives"_a = collective_array(job),
                         "critical_path"_a = path_arrays(job.critical_path), "restarts"_a = restart_list(job),
                         "stalls"_a = stall_array(job)));
  }
  return jobs;
}

py::dict result_dict(const SessionResult& result) {
  using namespace py::literals;
  const auto num_devices = static_cast<py::ssize_t>(result.device_end_ps.size());
  py::array_t<int64_t> breakdown({num_devices, static_cast<py::ssize_t>(result.num_buckets)});
  std::memcpy(breakdown.mutable_data(), result.breakdown_ps.data(), result.breakdown_ps.size() * sizeof(int64_t));
  return py::dict("jobs"_a = job_list(result), "breakdown_ps"_a = breakdown,
                  "sent_bytes"_a = to_array(result.sent_bytes), "received_bytes"_a = to_array(result.received_bytes),
                  "num_messages"_a = to_array(result.num_messages), "link_bytes"_a = to_array(result.link_bytes),
                  "link_busy_s"_a = to_array(result.link_busy_s), "device_end_ps"_a = to_array(result.device_end_ps),
                  "num_simulated_devices"_a = result.num_simulated_devices, "num_events"_a = result.num_events,
                  "num_solves"_a = result.num_solves, "timeline"_a = timeline_arrays(result.timeline),
                  "forwarded_bytes"_a = result.forwarded_bytes, "reports"_a = report_list(result.reports),
                  "failed"_a = failed_array(result), "checks"_a = result.checks, "notes"_a = result.notes);
}

py::dict run_session(std::shared_ptr<TaskGraph> graph, std::shared_ptr<routing::RouteTable> routes,
                     int64_t launch_latency_ps, int64_t host_launch_ps, int64_t min_collective_ps,
                     double comm_compute_fraction, int32_t min_iterations, int32_t max_iterations,
                     double steady_tolerance, bool averages, uint64_t seed, bool fold, bool shortcuts, bool park,
                     double tolerance, const network::PacketOptions& packets, bool watch_stalls,
                     const std::string& fidelity, const ControllerList& controllers,
                     const std::vector<int32_t>& timeline_devices, double kernel_deviation,
                     const std::string& distribution, const std::string& kernel_stream) {
  runtime::SessionOptions options;
  options.launch_latency = SimTime::from_ps(launch_latency_ps);
  options.host_launch = SimTime::from_ps(host_launch_ps);
  options.min_collective_time = SimTime::from_ps(min_collective_ps);
  options.comm_compute_fraction = comm_compute_fraction;
  options.min_iterations = min_iterations;
  options.max_iterations = max_iterations;
  options.steady_tolerance = steady_tolerance;
  options.enable_averages = averages;
  options.seed = seed;
  options.kernel_variation =
      Variation(find_distribution(distribution), kernel_deviation, stream_key(seed, kernel_stream));
  options.enable_folding = fold;
  options.enable_shortcuts = shortcuts;
  options.enable_parking = park;
  options.tolerance = tolerance;
  options.watch_stalls = watch_stalls;
  options.packets = packets;
  options.fidelity = fidelity;
  options.timeline_devices = timeline_devices;
  runtime::Controllers made = make_controllers(controllers);
  SessionResult result;
  {
    const Work work;
    result = runtime::run_session(graph, *routes, options, made);
  }
  return result_dict(result);
}

py::dict run_flows(std::shared_ptr<routing::RouteTable> routes, int32_t num_accelerators, const Array<int32_t>& src,
                   const Array<int32_t>& dst, const Array<int64_t>& num_bytes, const Array<int64_t>& start_ps,
                   const Array<double>& rate_cap, const Array<int64_t>& stop_ps, uint64_t seed, bool park,
                   double tolerance, const network::PacketOptions& packets, const ControllerList& controllers,
                   const std::vector<std::tuple<int64_t, int32_t, uint64_t>>& reroutes, const std::string& fidelity) {
  std::vector<runtime::FlowSpec> flows;
  for (py::ssize_t f = 0; f < src.size(); ++f) {
    flows.push_back({src.at(f), dst.at(f), num_bytes.at(f), SimTime::from_ps(start_ps.at(f)), rate_cap.at(f),
                     stop_ps.at(f) < 0 ? SimTime::never() : SimTime::from_ps(stop_ps.at(f))});
  }
  std::vector<runtime::RerouteEvent> moves;
  for (const auto& [time_ps, flow, hash] : reroutes) moves.push_back({SimTime::from_ps(time_ps), flow, hash});
  runtime::FlowRunResult result;
  {
    const Work work;
    result = runtime::FlowRun(*routes, num_accelerators, flows, make_controllers(controllers), moves,
                              {seed, fidelity, tolerance, packets, park})
                 .run();
  }
  using namespace py::literals;
  return py::dict("sent_ps"_a = to_array(result.sent_ps), "delivered_ps"_a = to_array(result.delivered_ps),
                  "bytes_left"_a = to_array(result.bytes_left), "link_bytes"_a = to_array(result.link_bytes),
                  "num_solves"_a = result.num_solves, "forwarded_bytes"_a = result.forwarded_bytes,
                  "reports"_a = report_list(result.reports), "checks"_a = result.checks, "notes"_a = result.notes);
}

}  // namespace

void bind_runtime(py::module_& module) {
  py::class_<TaskGraph, std::shared_ptr<TaskGraph>>(module, "TaskGraph",
                                                    "Templates, programs, groups and devices of a simulation.")
      .def(py::init([](std::vector<std::string> categories, int32_t num_jobs) {
             auto graph = std::make_shared<TaskGraph>();
             graph->categories = std::move(categories);
             graph->num_jobs = num_jobs;
             return graph;
           }),
           py::arg("categories"), py::arg("num_jobs") = 1)
      .def(
          "add_schedule",
          [](TaskGraph& graph, const std::string& collective, const std::string& algorithm, int32_t num_ranks,
             const GroupSizes& group_size, collectives::Sides grid, int32_t num_pieces, Rings rings, Rings trees,
             Rings parts) {
            graph.check_open();
            graph.schedules.push_back(
                collectives::make_schedule(collective, algorithm, num_ranks,
                                           make_layout(group_size, std::move(grid), num_pieces, std::move(rings),
                                                       std::move(trees), std::move(parts))));
            return static_cast<int32_t>(graph.schedules.size()) - 1;
          },
          py::arg("collective"), py::arg("algorithm"), py::arg("num_ranks"), py::arg("group_size") = 1,
          py::arg("grid") = collectives::Sides(), py::arg("num_pieces") = 1, py::arg("rings") = Rings(),
          py::arg("trees") = Rings(), py::arg("parts") = Rings(),
          "Returns the schedule's index; arguments as those of Schedule.")
      .def("add_template", &add_template, py::arg("kind"), py::arg("slot"), py::arg("category"), py::arg("schedule"),
           py::arg("channel"), py::arg("num_bytes"), py::arg("duration_ps"), py::arg("dep_offset"), py::arg("dep"),
           py::arg("kernel_offset") = Array<int64_t>(), py::arg("kernel_ps") = Array<int64_t>(),
           py::arg("is_awaited_by_host") = Array<bool>(), py::arg("protocol") = Array<int32_t>(),
           py::arg("variation") = Array<double>(), py::arg("origin") = Array<int32_t>(),
           py::arg("issue_ps") = Array<int64_t>(), py::arg("taken_ppm") = Array<int32_t>(),
           py::arg("queue") = Array<int32_t>(),
           "One entry for each task; dependencies in CSR form, as are the kernels of compute tasks: one kernel each\n"
           "without them. duration_ps: of compute, and the start-up of collectives and sends. protocol: of "
           "add_protocol,\n"
           "-1 for none. variation: of a compute task, its standard deviation as a share of one kernel's. origin:\n"
           "(tasks, 3) of a template that interleaves others: template, task there, micro-batches ahead. issue_ps: "
           "what\n"
           "each kernel costs its host, host_launch_ps without it. taken_ppm: of a collective, the millionths of a\n"
           "device's compute that it takes. queue: (tasks, 3) with the stream (-1: that of the slot), the\n"
           "communicator's order (-1: none), and 1 for a mark, which runs nothing and which nothing launches. Returns "
           "the\n"
           "template's index.")
      .def("add_protocol", &add_protocol, py::arg("wire_overhead"), py::arg("server_hop_ps"), py::arg("network_hop_ps"),
           py::arg("server_rate"), py::arg("region_rate") = std::numeric_limits<double>::infinity(),
           "How messages of communication tasks go; server_rate, and region_rate of transfers through switches that\n"
           "reduce, in bytes/s. Returns the protocol's index.")
      .def_readwrite(
          "server_size", &TaskGraph::server_size,
          "Consecutive accelerators of a server, within which messages pay a protocol's server hop; 0: none.")
      .def("add_program", &add_program, py::arg("template"), py::arg("microbatch"),
           py::arg("stride") = Array<int32_t>(), py::arg("block_offset") = Array<int64_t>(),
           py::arg("count") = Array<int64_t>(),
           "A list of (template, micro-batch), or blocks of them that repeat: entries block_offset[b] to\n"
           "block_offset[b + 1] run count[b] times, each with stride more in its micro-batch every time.\n"
           "Returns the program's index.")
      .def(
          "add_group",
          [](TaskGraph& graph, std::vector<int32_t> devices) {
            graph.check_open();
            graph.groups.push_back(std::move(devices));
            return static_cast<int32_t>(graph.groups.size()) - 1;
          },
          py::arg("devices"), "Devices of a process group in rank order. Returns the group's index.")
      .def("add_devices", &add_devices, py::arg("accelerator"), py::arg("program"), py::arg("job"), py::arg("slowdown"),
           py::arg("start_ps"), py::arg("slots"),
           "slots: (devices, slots, 3) with group, rank and peer device, -1 where unused.")
      .def("freeze", &workload::freeze, "Checks and derives; nothing may be added after it.");
  module.def("controller_names", &control::controller_names, "Names of the registered controllers.");
  module.def("controller_summary", &control::controller_summary, py::arg("name"), "One line for lists.");
  module.def("distribution_names", &distribution_names, "Names of the distributions of factors.");
  module.def(
      "draw_factors",
      [](const std::string& distribution, double deviation, uint64_t seed, const std::string& stream, int64_t count) {
        const Variation variation(find_distribution(distribution), deviation, stream_key(seed, stream));
        std::vector<double> factors;
        for (int64_t k = 0; k < count; ++k) factors.push_back(variation.factor(static_cast<uint64_t>(k)));
        return to_array(factors);
      },
      py::arg("distribution"), py::arg("deviation"), py::arg("seed"), py::arg("stream"), py::arg("count"),
      "Factors of mean 1 and the given relative standard deviation: the first `count` of a named stream of a seed.");
  module.def("run_flows", &run_flows, py::arg("routes"), py::arg("num_accelerators"), py::arg("src"), py::arg("dst"),
             py::arg("num_bytes"), py::arg("start_ps"), py::arg("rate_cap"), py::arg("stop_ps"), py::kw_only(),
             py::arg("seed") = 0, py::arg("park") = false, py::arg("tolerance") = 0.0,
             py::arg_v("packets", network::PacketOptions(), "PacketOptions()"),
             py::arg("controllers") = ControllerList{},
             py::arg("reroutes") = std::vector<std::tuple<int64_t, int32_t, uint64_t>>{},
             py::arg("fidelity") = runtime::FlowOptions().fidelity,
             "Runs given flows without the GIL; returns when each was sent and delivered. stop_ps < 0: never cut off.");
  module.def("run_session", &run_session, py::arg("graph"), py::arg("routes"), py::kw_only(),
             py::arg("launch_latency_ps") = 0, py::arg("host_launch_ps") = 0, py::arg("min_collective_ps") = 0,
             py::arg("comm_compute_fraction") = 0.0, py::arg("min_iterations") = 1, py::arg("max_iterations") = 1,
             py::arg("steady_tolerance") = 1e-3, py::arg("averages") = true, py::arg("seed") = 0,
             py::arg("fold") = true, py::arg("shortcuts") = true, py::arg("park") = false, py::arg("tolerance") = 0.0,
             py::arg_v("packets", network::PacketOptions(), "PacketOptions()"), py::arg("watch_stalls") = false,
             py::arg("fidelity") = runtime::SessionOptions().fidelity, py::arg("controllers") = ControllerList{},
             py::arg("timeline_devices") = std::vector<int32_t>{}, py::arg("kernel_deviation") = 0.0,
             py::arg("distribution") = distribution_names().front(), py::arg("kernel_stream") = "kernels",
             "Runs a frozen task graph over a system's links without the GIL and returns arrays.");
}

}  // namespace rostam::bindings
