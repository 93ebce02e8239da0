#include "runtime/instances.h"

#include <sstream>
#include <utility>

namespace rostam::runtime {

using workload::TaskKind;

Instances::Instances(const WeightedSystem& system, int32_t max_iterations)
    : system_(system), max_iterations_(max_iterations), devices_(system.devices.size()) {}

Instance* Instances::make(int32_t d, SimTime now) {
  DeviceState& state = devices_[d];
  const workload::Program& program = system_.graph->programs[system_.devices[d].program];
  const int64_t length = program.num_steps();
  if (length == 0 || state.next / length >= max_iterations_) return nullptr;
  const workload::ProgramStep step = program.step(state.next % length);
  const int32_t body_id = system_.graph->body_of[step.template_id];
  const Template& body = system_.graph->templates[body_id];
  if (free_.empty()) free_.push_back(&all_.emplace_back());
  Instance* const made = free_.back();
  free_.pop_back();
  made->template_id = step.template_id;
  made->body = body_id;
  made->microbatch = step.microbatch;
  made->iteration = static_cast<int32_t>(state.next / length);
  made->num_left = static_cast<int32_t>(body.tasks.size());
  made->has_begun = false;
  made->host.clear();
  made->tasks.assign(body.tasks.size(), TaskState());
  for (size_t t = 0; t < body.tasks.size(); ++t) {
    made->tasks[t].num_waiting = body.num_deps[t];
    made->tasks[t].ready = now;
  }
  ++state.next;
  state.live.push_back(made);
  return made;
}

void Instances::name(const TaskRef& ref, PathNode& node) const {
  const workload::Origin& origin = task(ref).origin;
  const bool is_own = origin.template_id < 0;
  node.device = ref.device;
  node.template_id = is_own ? at(ref.device, ref.sequence).template_id : origin.template_id;
  node.task = is_own ? ref.task : origin.task;
  node.microbatch = microbatch(ref);
}

const Instance* Instances::retire(int32_t d) {
  DeviceState& state = devices_[d];
  if (state.live.empty() || state.live[0]->num_left > 0) return nullptr;
  Instance* const done = state.live[0];
  free_.push_back(done);
  state.live.pop_front();
  ++state.first_live;
  return done;
}

void Instances::restart(int32_t d, int32_t iteration) {
  DeviceState& state = devices_[d];
  for (Instance* one : state.live) {
    one->tasks.clear();  // they hold parts of the critical path
    one->host.clear();
    free_.push_back(one);
  }
  state.live.clear();
  state.next = state.first_live = iteration * system_.graph->programs[system_.devices[d].program].num_steps();
}

std::string Instances::describe(const TaskRef& ref) const {
  const Instance& instance = at(ref.device, ref.sequence);
  const Task& described = task(ref);
  static const char* const kNames[] = {"compute", "collective", "send", "recv"};
  std::ostringstream text;
  text << kNames[static_cast<int>(described.kind)] << " task " << ref.task << " of template " << instance.template_id
       << ", micro-batch " << microbatch(ref) << ", iteration " << instance.iteration << ", on accelerator "
       << system_.devices[ref.device].accelerator;
  if (described.kind != TaskKind::kCompute) text << " (" << system_.graph->categories[described.category] << ")";
  return text.str();
}

std::string Instances::describe_blocked(int32_t count) const {
  std::ostringstream text;
  for (int32_t d = 0; d < static_cast<int32_t>(devices_.size()); ++d) {
    for (int64_t sequence = first(d); sequence < next(d); ++sequence) {
      const Instance& instance = at(d, sequence);
      for (int32_t t = 0; t < static_cast<int32_t>(instance.tasks.size()); ++t) {
        const TaskState& state = instance.tasks[t];
        if (state.is_done) continue;
        text << "\n  " << describe({d, sequence, t}) << " awaits "
             << (state.num_waiting > 0 ? std::to_string(state.num_waiting) + " dependencies"
                                       : std::string("its stream, its peers or its bytes"));
        if (--count == 0) return text.str();
      }
    }
  }
  return text.str();
}

}  // namespace rostam::runtime
