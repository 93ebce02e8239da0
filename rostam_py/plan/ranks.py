"""Ranks: which accelerator every rank of a job runs on (MODEL C11)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rostam_py.errors import ConfigError, DegreeError
from rostam_py.plan.machine import Machine
from rostam_py.plan.mapping import mapped_ranks
from rostam_py.plan.strategy import Strategy
from rostam_py.plan.strategy_names import MAPPED, random_seed

_AXES = ("dp", "cp", "pp", "tp")  # of a plan's grid of ranks


def assign_accelerators(strategy: Strategy, machine: Machine) -> np.ndarray:
    """Return the accelerator id of every rank, int64 array of shape (dp x cp, pp, tp), or (dp, mp, 1) for sip_ml.

    Model: ranks are numbered with the first axis of ``rank_order`` fastest; rank r runs on the r-th
        accelerator of the mapping. Linear and random mappings use ids 0 to n - 1, a failed one among
        them replaced by the lowest healthy id left over; auto and blocks are plan/mapping.py's. A list of
        ``accelerators`` is used in its order.
    Raises: DegreeError if the degrees do not fit; ConfigError if the mapping names a failed or
        unknown accelerator.
    """
    by_axis, axes = _by_axis(strategy, machine)
    by_place = by_axis.transpose([axes.index(axis) for axis in _AXES])
    return np.ascontiguousarray(by_place.reshape(strategy.shape))


def _by_axis(strategy: Strategy, machine: Machine) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the accelerator of every rank, an axis each, and the axes in their order, the fastest last."""
    check_fits(strategy, machine)
    chosen = np.array(_accelerators_by_rank(strategy, machine), dtype=np.int64)
    degrees = dict(zip(_AXES, (strategy.dp, strategy.cp, strategy.num_stages, strategy.tp), strict=True))
    slowest_first = tuple(reversed((*strategy.order, *(axis for axis in _AXES if axis not in strategy.order))))
    return chosen.reshape([degrees[axis] for axis in slowest_first]), slowest_first


def accelerators_of_replicas(strategy: Strategy, machine: Machine) -> np.ndarray:
    """Return the accelerators of every data-parallel replica, (dp, ranks of a replica)."""
    by_axis, axes = _by_axis(strategy, machine)
    return np.moveaxis(by_axis, axes.index("dp"), 0).reshape(int(strategy.dp), -1)


def surviving_accelerators(strategy: Strategy, machine: Machine, failed: Sequence[int]) -> tuple[int, list[int]]:
    """Return how many replicas have none of the failed accelerators, and the accelerators of those, by rank."""
    by_axis, axes = _by_axis(strategy, machine)
    dp = axes.index("dp")
    by_replica = np.moveaxis(by_axis, dp, 0).reshape(int(strategy.dp), -1)
    is_whole = ~np.isin(by_replica, list(failed)).any(axis=1)
    return int(is_whole.sum()), np.compress(is_whole, by_axis, axis=dp).ravel().tolist()


def filled(strategy: Strategy, machine: Machine) -> Strategy:
    """Return the strategy with an open dp filled in: as many replicas as the healthy accelerators hold.

    Model: explicit ``accelerators``, or a ``mapping`` list, count instead of the machine's. Where failures leave a
        remainder that no replica fits, it idles.
    Raises: DegreeError if there is no room for one replica, or one does not divide a whole machine.
    """
    if strategy.dp is not None:
        return strategy
    listed = strategy.mapping if isinstance(strategy.mapping, list) else strategy.accelerators
    healthy = len(machine.healthy_accelerators)
    count = healthy if listed is None else len(listed)
    inner = strategy.num_ranks_of_replica
    degrees = {axis: degree for axis, degree in strategy.degrees().items() if axis != "dp" and degree > 1}
    what = f"strategy.{' x '.join(degrees)} = {' x '.join(map(str, degrees.values()))}"
    what += f" = {inner}" if len(degrees) > 1 else ""
    size = "the machine has" if listed is None else "the strategy names"
    if not count:
        key = "mapping" if listed is strategy.mapping else "accelerators"
        none = "the machine has no healthy accelerator" if listed is None else f"strategy.{key} is []"
        raise DegreeError(f"{none}; a replica needs {inner}")
    if count < inner:
        raise DegreeError(f"{what} needs as many accelerators for one replica; {size} {count} healthy ones")
    is_whole = healthy == machine.num_accelerators or listed is not None
    if count % inner and is_whole and not strategy.allow_idle:
        raise DegreeError(
            f"{what} does not divide the {count} accelerators that {size}; take degrees that do, or set"
            " strategy.allow_idle=true"
        )
    allow_idle = strategy.allow_idle or bool(count % inner)
    return replace(strategy, dp=count // inner, allow_idle=allow_idle)


def check_fits(strategy: Strategy, machine: Machine) -> None:
    """Raise DegreeError unless the product of the degrees fits the machine."""
    ranks, healthy, total = strategy.num_ranks, len(machine.healthy_accelerators), machine.num_accelerators
    degrees = strategy.named_degrees()
    product = f"strategy.{' x '.join(degrees)} = {' x '.join(map(str, degrees.values()))} = {ranks}"
    size = f"{healthy} healthy accelerators" + (f" of {total}" if healthy != total else "")
    if ranks > healthy:
        raise DegreeError(f"{product}, but the machine has {size}; lower the degrees or take a larger fabric")
    explicit = strategy.accelerators is not None or not isinstance(strategy.mapping, str)
    if ranks < healthy and not strategy.allow_idle and not explicit:
        raise DegreeError(
            f"{product}, but the machine has {size}; raise the degrees, or set strategy.allow_idle=true"
            " or strategy.accelerators"
        )
    for key in ("accelerators", "mapping"):
        value = getattr(strategy, key)
        if isinstance(value, list) and len(value) != ranks:
            raise DegreeError(f"strategy.{key} has {len(value)} entries, but {product}; it needs one for every rank")


def mapping_notes(strategy: Strategy, machine: Machine) -> tuple[str, ...]:
    """Return how groups lie where the mapping is left open and the fabric has blocks to choose; none elsewhere."""
    if strategy.mapping not in MAPPED or strategy.accelerators is not None:
        return ()
    note = mapped_ranks(strategy, machine, _first_healthy(strategy.num_ranks, machine))[1]
    return (note,) if note else ()


def _accelerators_by_rank(strategy: Strategy, machine: Machine) -> list[int]:
    if isinstance(strategy.mapping, list):
        return _checked("mapping", strategy.mapping, machine)
    if strategy.accelerators is not None:
        slots = _checked("accelerators", strategy.accelerators, machine)
    else:
        slots = _first_healthy(strategy.num_ranks, machine)
        if strategy.mapping in MAPPED:
            return mapped_ranks(strategy, machine, slots)[0]
    if strategy.mapping in (*MAPPED, "linear"):
        return slots
    seed = random_seed(strategy.mapping)
    rng = np.random.default_rng(strategy.placing.mapping_seed if seed is None else seed)
    return [slots[i] for i in rng.permutation(len(slots))]


def _first_healthy(count: int, machine: Machine) -> list[int]:
    """Return ids 0 to count - 1, each failed one replaced by a spare."""
    healthy = machine.healthy_accelerators
    alive = set(healthy)
    spares = iter([a for a in healthy if a >= count])
    return [a if a in alive else next(spares) for a in range(count)]


def _checked(key: str, ids: list[int], machine: Machine) -> list[int]:
    alive = set(machine.healthy_accelerators)
    for a in ids:
        if not 0 <= a < machine.num_accelerators:
            raise ConfigError(
                f"strategy.{key} names accelerator {a}; it must be in 0 to {machine.num_accelerators - 1}"
            )
        if a not in alive:
            raise ConfigError(f"strategy.{key} names accelerator {a}, which has failed; name a healthy one")
    return list(ids)
