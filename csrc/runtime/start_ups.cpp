#include "runtime/start_ups.h"

#include <utility>

namespace rostam::runtime {

StartUps::StartUps(const folding::WeightedSystem& system, EventQueue& queue, const Instances& instances,
                   const Jobs& jobs, StartUpClient& client)
    : queue_(queue), instances_(instances), jobs_(jobs), client_(client), overs_(*this, &StartUps::on_over) {
  for (const workload::Device& device : system.devices) waiting_.emplace_back(device.slots.size());
}

void StartUps::start(const TaskRef& ref, const CriticalPath::Ref& cause) {
  const Task& task = instances_.task(ref);
  if (task.duration == SimTime::zero()) return client_.start_up_over(ref, cause);
  waiting_[ref.device][task.slot] = {ref, cause};
  queue_.schedule(queue_.now() + task.duration, Priority::kNormal, &overs_,
                  pack(ref.device, task.slot, jobs_.epoch_of(ref.device)));
}

void StartUps::on_over(uint64_t payload) {
  const int32_t d = high(payload);
  if (epoch_of(payload) != jobs_.epoch_of(d)) return;  // its job was cut
  const Waiting one = std::exchange(waiting_[d][index_of(payload)], Waiting());
  client_.start_up_over(one.task, one.cause);
}

}  // namespace rostam::runtime
