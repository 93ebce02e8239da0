"""Allocators: which accelerators of a shared machine a job gets; one file each.

Example:
    room = Room(machine.fabric.config, is_working, is_taken, host_size=8, seed=0)
    allocator = make_allocator("submesh", room, {"aspect_ratio": 8})
    given = allocator.take(64)          # None where no place is left
    allocator.give_back(given)
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.fleet.allocators.allocator import Allocator, AllocatorConfig, Given, Room
from rostam_py.registry import Registry

ALLOCATORS = Registry("allocator")
ALLOCATORS.add("arcs", "rostam_py.fleet.allocators.arcs:Arcs")
ALLOCATORS.add("blocks", "rostam_py.fleet.allocators.blocks:Blocks")
ALLOCATORS.add("leaves", "rostam_py.fleet.allocators.leaves:Leaves")
ALLOCATORS.add("linear", "rostam_py.fleet.allocators.linear:Linear")
ALLOCATORS.add("random", "rostam_py.fleet.allocators.random:Random")
ALLOCATORS.add("submesh", "rostam_py.fleet.allocators.submesh:Submesh")


def check_allocation(allocation: Any) -> None:
    """Raise ConfigError unless it is a registered allocator."""
    if allocation not in ALLOCATORS:
        names = ", ".join(ALLOCATORS.names())
        raise ConfigError(f"mix.allocation is {allocation!r}; it must be one of: {names}")


def allocator_config(allocation: str, options: Mapping[str, Any] | None) -> AllocatorConfig:
    """Return an allocator's settings.

    Raises: ConfigError for an unknown allocator, an unknown key or a bad value.
    """
    check_allocation(allocation)
    schema = ALLOCATORS.get(allocation).Config
    known = [entry.name for entry in dataclasses.fields(schema)]
    if options is not None and not isinstance(options, Mapping):
        raise ConfigError(
            f"mix.allocation_options is {options!r}; it must hold keys with values, such as {{largest_first: true}}"
        )
    for key in options or {}:
        if key not in known:
            raise ConfigError(
                f"mix.allocation_options has no key {key!r} for mix.allocation={allocation}; it has: {', '.join(known)}"
            )
    config: AllocatorConfig = schema(**(options or {}))
    return config


def make_allocator(allocation: str, room: Room, options: Mapping[str, Any] | None = None) -> Allocator:
    """Return a registered allocator over the free accelerators of a machine.

    Args:
        allocation: one of ``ALLOCATORS.names()``.
        room: the machine.
        options: fields of the allocator's ``Config``.
    Raises: ConfigError for an unknown name or key, a bad value, or a fabric that the allocator is not for.
    """
    config = allocator_config(allocation, options)
    allocator: Allocator = ALLOCATORS.get(allocation)(config, room)
    return allocator


__all__ = [
    "ALLOCATORS", "Allocator", "AllocatorConfig", "Given", "Room", "allocator_config", "check_allocation",
    "make_allocator",
]  # fmt: skip
