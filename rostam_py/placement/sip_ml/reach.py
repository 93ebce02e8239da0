"""Reach: the window that a fabric leaves the model-parallel groups of a strategy, or why it leaves none."""

from dataclasses import replace

import numpy as np

from rostam_py.errors import ConfigError, DegreeError
from rostam_py.placement.sip_ml.window import Window, circuits_in_group, make_window
from rostam_py.plan.machine import Machine
from rostam_py.plan.ranks import assign_accelerators
from rostam_py.plan.strategy import Strategy


def group_window(strategy: Strategy, machine: Machine) -> Window | None:
    """Return which devices of a group may exchange data on a machine; None without a limit.

    Raises: DegreeError if a device holds too few circuits to exchange anything, or if the fabric cannot connect
        neighbours of a group or of a data-parallel ring: then it names the largest strategy.mp that works.
    Cost: accelerators x mp on fabrics of limited reach, else mp^2.
    """
    degree = circuit_limit(strategy, machine)
    _check_degree(strategy, degree)
    connected = None
    if machine.fabric.is_circuit_switched:
        groups = assign_accelerators(strategy, machine)[:, :, 0]
        far = _farthest(strategy, machine, groups)
        if far is not None:
            raise DegreeError(_out_of_reach(strategy, machine, far))
        connected = _connected(machine, groups)
    return make_window(
        strategy.mp, degree, kind=strategy.placing.window, has_ring=strategy.dp > 1, connected=connected
    )  # fmt: skip


def circuit_limit(strategy: Strategy, machine: Machine) -> int | None:
    """Return D, the circuits one device may hold: the strategy's, else the fabric's; None without a limit."""
    limits = (machine.fabric.max_circuit_degree, strategy.max_circuit_degree)
    return min((limit for limit in limits if limit is not None), default=None)


def _check_degree(strategy: Strategy, degree: int | None) -> None:
    needed = 2 if strategy.placing.window == "symmetric" else 1
    has_ring = strategy.dp > 1
    if degree is None or strategy.mp - 1 <= circuits_in_group(degree, has_ring) >= 0:
        return
    if circuits_in_group(degree, has_ring) < needed:
        kept = ", of which one is kept for the data-parallel ring" if has_ring else ""
        most = max(1, circuits_in_group(degree, has_ring) + 1)
        raise DegreeError(
            f"strategy.mp is {strategy.mp}, but a device may hold only {degree} circuits{kept}: with"
            f" strategy.placing.window={strategy.placing.window} its devices could exchange nothing. Allow"
            f" {needed + has_ring} or more (strategy.max_circuit_degree, the fabric), or set strategy.mp to at most"
            f" {most}"
        )


def _farthest(strategy: Strategy, machine: Machine, groups: np.ndarray) -> tuple[str, int, int] | None:
    """Return neighbours, of a group or of a data-parallel ring, that the fabric cannot connect; None if there are none.

    Args: groups: accelerators, (dp, mp).
    """
    rings = [("a model-parallel group", groups), ("a data-parallel ring", groups.T)]
    for what, members in rings:
        if members.shape[1] < 2:
            continue
        src, dst = members.ravel(), np.roll(members, -1, axis=1).ravel()
        if what == "a model-parallel group" and strategy.placing.window == "symmetric":
            src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
        out = np.flatnonzero(~machine.fabric.can_connect(src, dst))
        if len(out):
            return what, int(src[out[0]]), int(dst[out[0]])
    return None


def _connected(machine: Machine, groups: np.ndarray) -> np.ndarray | None:
    """Return which devices the fabric can connect in every group, (mp, mp) booleans; None if all."""
    num_groups, k = groups.shape
    shape = (num_groups, k, k)
    src, dst = np.broadcast_to(groups[:, :, None], shape), np.broadcast_to(groups[:, None, :], shape)
    found: np.ndarray = machine.fabric.can_connect(src.ravel(), dst.ravel()).reshape(shape).all(axis=0)
    return None if found.all() else found


def _out_of_reach(strategy: Strategy, machine: Machine, far: tuple[str, int, int]) -> str:
    what, a, b = far
    lower = [mp for mp in range(strategy.mp - 1, 0, -1) if strategy.num_ranks % mp == 0]
    works = next((mp for mp in lower if _works(replace(strategy, mp=mp, dp=strategy.num_ranks // mp), machine)), None)
    instead = "no lower one works either" if works is None else f"the largest that works on as many is {works}"
    return (
        f"strategy.mp is {strategy.mp}, but accelerators {a} and {b}, neighbours in {what}, are out of each other's"
        f" reach on {machine.fabric.name}; {instead}"
    )


def _works(strategy: Strategy, machine: Machine) -> bool:
    try:
        _check_degree(strategy, circuit_limit(strategy, machine))
        return _farthest(strategy, machine, assign_accelerators(strategy, machine)[:, :, 0]) is None
    except ConfigError:
        return False
