"""Ideal: a program without habits of its own, an upper bound of what any reaches."""

from dataclasses import dataclass

from rostam_py.software.stack import Stack


@dataclass(kw_only=True)
class Ideal(Stack):
    """An upper bound on speed: element-wise ops fused into other kernels, no waits for the host, exact memory.

    Model: every rule at its default (docs/how-to/my_strategy.md); what the strategy or the machine says itself stays.
    """

    SOURCES = "own: no program can be faster with the same kernels and links"
