"""Writing: how much longer iterations take while a checkpoint flows to storage beside the job's own messages.

Example:
    found = writing_of(plan, num_bytes=checkpoint_bytes(plan), bytes_per_s=100e9)
    found.iterations, found.stretch          # iterations that it is written in, and how much longer each takes

Model: every accelerator of the job writes an equal share of the checkpoint to an end point of storage of its own, on as
many further ports of the same fabric. In each iteration it sends what storage takes in the time of one, or the rest of
its share, at once, and the engine shares links between these flows and the job's messages. When in an iteration they
begin is not known: they do at its beginning, or before the last run of one of its templates (the last backward pass,
the optimizer's), whichever makes it longest. Iterations that take longer so are not given more to send, which makes
writing take longer. Ignores what reading memory for it costs kernels, and storage that other jobs use.
Source: own; tests/fleet/goodput/test_writing.py has two closed forms: a job that sends nothing, and one that is bound
by its links.
"""

import math
from dataclasses import asdict, dataclass, replace

import numpy as np

from rostam_py.errors import ConfigError
from rostam_py.fabrics import build_fabric
from rostam_py.fabrics.fabric import Fabric
from rostam_py.plan.groups import GroupSet
from rostam_py.plan.plan import Plan
from rostam_py.plan.program import Program, Segment
from rostam_py.plan.state_sharding import sharding_degree
from rostam_py.plan.tasks import Task
from rostam_py.simulation.graph_job import GraphJob, StageTasks
from rostam_py.simulation.options import SimulationOptions
from rostam_py.simulation.simulate import simulate
from rostam_py.simulation.task_graph import TaskGraph

SIMULATED, BOUND = "simulated", "upper bound: nothing overlaps"
_LABEL = "checkpoint"
_ALIKE = 0.01  # difference of an iteration on the wider fabric


@dataclass(frozen=True, kw_only=True)
class Writing:
    """A checkpoint on its way to storage.

    iterations: in which it is written. stretch: how many times as long each of them takes, >= 1. num_bytes: of the
    whole checkpoint. basis: SIMULATED, or BOUND where the fabric cannot be given ports for storage.
    """

    iterations: int
    stretch: float
    num_bytes: int
    basis: str


def checkpoint_bytes(plan: Plan) -> int:
    """Return the size of a checkpoint: weights and optimizer state, once.

    Model: the fullest device's times the number of devices, over the copies that replicas hold. With experts all
        weights count as having as few copies as they, which errs towards larger checkpoints.
    """
    strategy, parts = plan.strategy, plan.memory_parts
    copies = strategy.dp * strategy.cp // strategy.ep
    degree = sharding_degree(strategy.dp, strategy.cp, strategy.shard, strategy.shard_group) if strategy.shard else 1
    shared = max(copies // degree, 1)  # copies of what is shared
    state = parts["optimizer_state"] / (shared if strategy.shard else copies)
    weights = parts["parameters"] / (shared if strategy.shard == 3 else copies)
    return math.ceil((state + weights) * plan.num_devices)


def writing_of(plan: Plan, *, num_bytes: int, bytes_per_s: float, options: SimulationOptions | None = None) -> Writing:
    """Return how a checkpoint of a plan is written.

    Args: num_bytes: of the whole checkpoint. bytes_per_s: that storage takes from all of the job's accelerators.
    Raises: ConfigError for a rate or a size that is not positive.
    Cost: simulations of an iteration, one for each template and three, most on a fabric of twice the size.
    """
    for key, value in (("num_bytes", num_bytes), ("bytes_per_s", bytes_per_s)):
        if not 0 < value < math.inf:
            raise ConfigError(f"{key} is {value!r}; it must be a number > 0")
    share, rate = math.ceil(num_bytes / plan.num_devices), bytes_per_s / plan.num_devices
    fabric, own_s = _with_ports(plan), simulate(plan, options=options).iteration_time_s
    if fabric is None:
        return _bound(plan, num_bytes, (share, rate), own_s)
    machine = replace(plan.machine, fabric=fabric)
    alone_s = simulate(TaskGraph(machine, (GraphJob.of(plan),)), options=options).iteration_time_s
    if abs(alone_s / own_s - 1) > _ALIKE:  # in a wider fabric the job does not have the ways it had
        return _bound(plan, num_bytes, (share, rate), own_s)
    each = min(share, max(math.floor(rate * alone_s), 1))
    beside_s = max(
        simulate(TaskGraph(machine, (_beside(plan, each, before),)), options=options).iteration_time_s
        for before in _places(plan)
    )
    return Writing(
        iterations=math.ceil(share / each), stretch=max(beside_s / alone_s, 1.0), num_bytes=num_bytes, basis=SIMULATED
    )


def _bound(plan: Plan, num_bytes: int, of_one: tuple[int, float], alone_s: float) -> Writing:
    """Return the writing of a job whose messages and kernels all wait for it.

    Args: of_one: what an accelerator writes: bytes, and at most how fast [bytes/s]. alone_s: an iteration [s].
    """
    share, rate = of_one
    rate = min(rate, plan.machine.fabric.injection_bandwidth_bytes_per_s)
    each = min(share, max(math.floor(rate * alone_s), 1))
    return Writing(
        iterations=math.ceil(share / each), stretch=1 + each / rate / alone_s, num_bytes=num_bytes, basis=BOUND
    )


def _with_ports(plan: Plan) -> Fabric | None:
    """Return the plan's fabric with twice as many ports, None where it has no such size, circuits, or failed parts."""
    fabric = plan.machine.fabric
    if fabric.is_circuit_switched or fabric.failures:
        return None
    try:
        wider = fabric.config.resized(asdict(fabric.config), 2 * fabric.num_accelerators)
        return build_fabric(fabric.name, **wider)
    except ConfigError:
        return None


def _places(plan: Plan) -> list[str]:
    """Return templates before whose last run messages may begin; "" is the iteration's beginning."""
    return ["", *dict.fromkeys(name for stage in plan.stages for name in stage.program.counts())]


def _with_message(program: Program, before: str) -> Program:
    """Return a program with the message before the last run of a template, at its beginning where it has none."""
    message = (_LABEL, 0)
    entries = list(program)
    last = next((k for k in reversed(range(len(entries))) if entries[k][0] == before), 0)
    if not last:
        return Program((Segment((message,)), *program.segments))
    return Program.of([*entries[:last], message, *entries[last:]])


def _beside(plan: Plan, each: int, before: str) -> GraphJob:
    """Return the job with a message of every device to storage in each iteration.

    Args: each: of one [bytes]. before: of _places.
    """
    job, size = GraphJob.of(plan), plan.machine.fabric.num_accelerators
    send, receive = (
        Task(kind=kind, name=_LABEL, group=_LABEL, channel=_LABEL, stream=_LABEL, num_bytes=each, peer=peer)
        for kind, peer in (("send", 1), ("recv", -1))
    )
    stages = [
        replace(
            stage, templates={**stage.templates, _LABEL: (send,)},
            program=_with_message(stage.program, before),
        )
        for stage in job.stages
    ]  # fmt: skip
    storage = StageTasks(len(stages), {_LABEL: (receive,)}, Program.of([(_LABEL, 0)]))
    count = job.num_devices
    pairs = np.stack([np.arange(count), count + np.arange(count)], axis=1)
    return replace(
        job, stages=(*stages, storage), devices=np.concatenate([job.devices, size + job.devices]),
        stage_of=np.concatenate([job.stage_of, np.full(count, len(stages), job.stage_of.dtype)]),
        groups=(*job.groups, GroupSet("pp", _LABEL, pairs)),
    )  # fmt: skip
