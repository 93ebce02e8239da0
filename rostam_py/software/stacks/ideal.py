"""Ideal: a program without habits of its own, an upper bound at the settings of a strategy."""

from dataclasses import dataclass

from rostam_py.software.stack import Stack


@dataclass(kw_only=True)
class Ideal(Stack):
    """An upper bound on speed: element-wise ops fused into other kernels, no waits for the host, exact memory.

    Model: every rule at its default (docs/how-to/my_strategy.md); what the strategy or the machine says itself stays.
    """

    SOURCES = (
        "own: what is left of a job without a program's own kernels, copies, waits and launches; optimisations that a"
        " strategy has to ask for (tp_overlap, gradients in 16 bits, norms inside convolutions) can still be faster"
    )
