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
  const Template& body = system_.graph->templates[step.template_id];
  auto made = std::make_unique<Instance>();
  made->template_id = step.template_id;
  made->microbatch = step.microbatch;
  made->iteration = static_cast<int32_t>(state.next / length);
  made->num_left = static_cast<int32_t>(body.tasks.size());
  made->tasks.resize(body.tasks.size());
  for (size_t t = 0; t < body.tasks.size(); ++t) {
    made->tasks[t].num_waiting = body.num_deps[t];
    made->tasks[t].ready = now;
  }
  ++state.next;
  state.live.push_back(std::move(made));
  return state.live.back().get();
}

void Instances::name(const TaskRef& ref, PathNode& node) const {
  const workload::Origin& origin = task(ref).origin;
  const bool is_own = origin.template_id < 0;
  node.device = ref.device;
  node.template_id = is_own ? at(ref.device, ref.sequence).template_id : origin.template_id;
  node.task = is_own ? ref.task : origin.task;
  node.microbatch = microbatch(ref);
}

std::unique_ptr<Instance> Instances::retire(int32_t d) {
  DeviceState& state = devices_[d];
  if (state.live.empty() || state.live.front()->num_left > 0) return nullptr;
  std::unique_ptr<Instance> done = std::move(state.live.front());
  state.live.pop_front();
  ++state.first_live;
  return done;
}

void Instances::restart(int32_t d, int32_t iteration) {
  DeviceState& state = devices_[d];
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
