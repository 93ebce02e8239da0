"""Crossing: the messages between a pipeline's stages, in one template of one stage.

Example:
    crossing = Crossing(log, stage=1)
    crossing.receive_all()
    crossing.send(kernel.outputs)              # behind each kernel
"""

import math
from collections.abc import Sequence

from rostam_py.placement.megatron.writers.task_log import TaskLog
from rostam_py.placement.megatron.writers.template_context import TemplateContext
from rostam_py.plan.phases import BACKWARD, FORWARD, FULL
from rostam_py.plan.tasks import Task


class Crossing:
    """What a stage receives and sends in a phase: tensors, bytes, where the peers are, and over which boundaries.

    The stage before or behind may be on the same device, which has its results without a message.

    size, sent: bytes of a tensor, and of the message that brings it.
    Boundary k is that between stages k and k + 1; told only where a device has several of one direction.
    """

    def __init__(self, log: TaskLog, stage: int) -> None:
        self.log, self.context = log, log.context
        context, stages, phase = log.context, log.context.stages, log.phase
        flow = {FORWARD: stages.up, BACKWARD: stages.down, FULL: stages.down}.get(phase)
        step = 1 if phase == FORWARD else -1
        before = stage - step
        is_inner = 0 <= before < stages.num_stages
        self.arriving = flow[before] if flow is not None and is_inner else []
        self.leaving = set(flow[stage]) if flow is not None else set()
        self.size = {t: _message_bytes(context, t) for t in {*self.arriving, *self.leaving}}
        self.sent = {t: _sent_bytes(context, t, size) for t, size in self.size.items()}
        self.source = stages.devices[before] - stages.devices[stage] if self.arriving else 0
        self.target = stages.devices[stage + step] - stages.devices[stage] if self.leaving else 0
        is_told = stages.num_stages > stages.num_devices
        self.boundary_before = min(before, stage) if is_told else None
        self.boundary_behind = min(stage, stage + step) if is_told else None

    def receive_all(self) -> None:
        """Receive what arrives, and send on what leaves as well."""
        if not self.source:  # made by a template of this device
            self.log.find_ready(self.arriving)
        for t in self.arriving:
            if self.source:
                self._receive(t)
            self._send(t)
            if self.source and self.sent[t] < self.size[t]:
                self._gather_received(t)
        self.leaving -= set(self.arriving)

    def send(self, made: Sequence[int]) -> None:
        """Send what leaves of the tensors that a kernel has made."""
        for t in made:
            self._send(t)

    def await_sends(self) -> None:
        """Let whatever the device computes next wait until this template's messages have been delivered."""
        self.log.close()
        sends = tuple(t for t, task in enumerate(self.log.tasks) if task.kind == "send")
        if sends:
            self.log.tasks.append(Task(kind="compute", name=f"{self.log.phase} is sent", deps=sends))

    def _receive(self, tensor: int) -> None:
        """Receive a tensor from the stage before."""
        name, label = f"recv {self.log.origin(tensor)}", self._channel(tensor, self.boundary_before)
        size = self.sent[tensor]
        task = Task(kind="recv", name=name, group="pp", num_bytes=size, channel=label, peer=self.source)
        self.log.provider[tensor] = self.log.append(task)

    def _send(self, tensor: int) -> None:
        """Send a tensor to the stage behind as soon as it is ready, if it leaves the device."""
        if tensor not in self.leaving or not self.target:
            return
        name, label = f"send {self.log.origin(tensor)}", self._channel(tensor, self.boundary_behind)
        self.log.append(
            Task(
                kind="send",
                name=name,
                deps=self.log.deps_on([tensor]),
                group="pp",
                num_bytes=self.sent[tensor],
                channel=label,
                peer=self.target,
            )
        )

    def _gather_received(self, tensor: int) -> None:
        """Gather a tensor of which each member of the tp group has received its share."""
        name, provider = f"all_gather {self.log.origin(tensor)} {self.log.phase} (received)", self.log.provider
        provider[tensor] = self.log.collective(name, "tp", "all_gather", self.size[tensor], (provider[tensor],))

    def _channel(self, tensor: int, boundary: int | None) -> str:
        producer = self.context.graph.tensors[tensor].producer
        label = f"t{tensor}" if producer is None else f"{self.context.graph.ops[producer].name}.t{tensor}"
        return label if boundary is None else f"{label} over boundary {boundary}"


def _message_bytes(context: TemplateContext, tensor: int) -> int:
    return math.ceil(context.builder.tensor_bytes(tensor, tensor in context.sharding.comms))


def _sent_bytes(context: TemplateContext, tensor: int, num_bytes: int) -> int:
    """Return what of a tensor of so many bytes each member of the tp group sends."""
    sharding = context.sharding
    is_whole = sharding.tensor_fraction(tensor, tensor in sharding.comms) == 1
    return math.ceil(num_bytes / sharding.degree) if context.splits_messages and is_whole else num_bytes
