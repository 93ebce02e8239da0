"""What a stage holds of messages of all micro-batches (software.rules.pipeline_buffers=every_microbatch).

Model: a place for each micro-batch's input, but for the first stage's, and for the gradient of each one's output, but
for the last stage's, all the time; every output, of the last stage the logits that its loss reads, from its forward to
the next iteration. Nothing of it counts as kept for backward besides. Ignores that the last stage joins its outputs
once the iteration has run, when activations and whole gradients, which take more, are gone; and tokens and targets.
Source: torch/distributed/pipelining/stage.py of pytorch/pytorch to 2.7: args_recv_info and grad_recv_info of every
chunk (_prepare_forward_infra, _prepare_backward_infra; issue 136380 asks for fewer), output_chunks in
forward_one_chunk, which clear_runtime_states empties at the next step (since pull 153383 of 2025-05 it is the last
stage's alone).
"""

from dataclasses import dataclass

from rostam_py.costs.precision import is_of_log_softmax
from rostam_py.graph import OperatorGraph
from rostam_py.placement.kernels import KernelBuilder
from rostam_py.placement.megatron.pipeline import StageAssignment


@dataclass(frozen=True, slots=True)
class Messages:
    """Of one stage, without views. received, given: in forward. gradients: of what it gave."""

    received: frozenset[int] = frozenset()
    given: frozenset[int] = frozenset()
    gradients: frozenset[int] = frozenset()

    @property
    def held(self) -> frozenset[int]:
        """What lies in places that last, and need not be kept for backward."""
        return self.received | self.given

    def num_bytes(self, builder: KernelBuilder) -> float:
        """Return one device's bytes of one micro-batch. What was received and is given on as it came counts once."""
        tensors = self.held | self.gradients
        return sum(builder.tensor_bytes(t, whole=True) for t in tensors)


def stage_messages(graph: OperatorGraph, stages: StageAssignment) -> list[Messages]:
    """Return what every stage receives and gives. Cost: linear in ops."""
    last = stages.num_stages - 1
    logits = frozenset(
        graph.view_roots[op.inputs[0]] for op in graph.ops
        if op.phase == "forward" and is_of_log_softmax(op.op_type) and stages.op_stages[op.id] == last
    )  # fmt: skip
    return [
        Messages(
            frozenset(stages.up[s - 1]) if s else frozenset(),
            frozenset(stages.up[s]) if s < last else logits,
            frozenset(stages.down[s + 1]) if s < last else frozenset(),
        )
        for s in range(stages.num_stages)
    ]
