"""Layers: what the layers of a pipeline's first stage hold on one device, without embedding and head.

Published figures of memory are often of the layers alone. With a pipeline they are what the first stage's program holds
at its most if each chunk keeps what one of the second stage does, which has no embedding and no head, and replays cost
nothing. Without a pipeline they are what one more layer adds, times the layers.
"""

from collections.abc import Callable
from dataclasses import dataclass

from rostam_py.plan import Plan

# (layers or None for all of them) -> the plan of that model.
Placed = Callable[[int | None], Plan]


@dataclass(frozen=True, slots=True)
class LayersHeld:
    """Bytes of a stage's layers on one device. state: parameters, gradients and optimizer state. activations: at their
    most, replays aside. whole_activations: of the whole first stage, embedding and head included."""

    state: float
    activations: float
    whole_activations: float


def layers_held(placed: Placed, num_layers: int) -> LayersHeld:
    """Return what the layers of the first stage hold.

    Args: num_layers: of the whole model.
    """
    plan = placed(None)
    if len(plan.stages) > 1:
        first, inner = plan.stages[:2]
        kept = first.program.peak({key: _kept(change) for key, change in inner.activation_changes.items()})
        return LayersHeld(_state(plan, 1), kept, first.memory.activations)
    one, two = placed(1), placed(2)
    return LayersHeld(
        (_state(two, 0) - _state(one, 0)) * num_layers, (_held(two) - _held(one)) * num_layers, _held(plan)
    )


def _state(plan: Plan, stage: int) -> float:
    memory = plan.stages[stage].memory
    return memory.parameters + memory.gradients + memory.optimizer_state


def _kept(change: tuple[float, float]) -> tuple[float, float]:
    """Return what a phase keeps or frees, without what it replays meanwhile."""
    return 0.0 if change[1] else change[0], sum(change) if change[1] else 0.0


def _held(plan: Plan) -> float:
    """Return the bytes that a device keeps of one micro-batch, replays aside."""
    return plan.stages[0].activation_changes["forward"][0]
