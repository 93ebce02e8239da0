"""mapping=auto: whether groups of tp, then cp, lie on compact blocks of the fabric or on consecutive accelerators.

Example:
    mapped_ranks(Strategy(dp=16, tp=4), Machine(fabric=fabric("torus", dims=(8, 8))), list(range(64)))[0][:4]
    # [0, 1, 8, 9]
"""

import math
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from rostam_py.collectives.group_costs import group_costs
from rostam_py.collectives.rank_groups import in_grid_order, in_server_order
from rostam_py.collectives.transport import transport
from rostam_py.errors import ConfigError, NoRouteError
from rostam_py.fabrics.blocks import CompactOrder
from rostam_py.fabrics.fabric import Fabric
from rostam_py.plan.machine import Machine
from rostam_py.plan.strategy import Strategy
from rostam_py.plan.strategy_names import BLOCKS_MAPPING
from rostam_py.plan.traffic import AUTO, schedule_of_groups

NOTE = "mapping: "
# Of a transformer's layer tp exposes four collectives, while those of cp overlap with attention.
_WEIGHTS = {"tp": 4, "cp": 1}
# What groups of an axis exchange. Shapes are compared at one size: of 16 MiB links decide, not the hops.
_CP_COLLECTIVES = {"ring": "shift", "all_gather": "all_gather", "ulysses": "all_to_all", "torch": "all_gather"}
_SIZE = 16 * 2**20
# Of a larger job the first and the last ranks stand for all: blocks of one shape are alike except at their edges.
_MOST_RANKS = 4096
_GAIN = 0.99  # blocks must take less than this share of the linear mapping's time: on equal terms nothing moves


@dataclass(frozen=True, slots=True)
class Blocks:
    """The compact blocks of a job's ranks. order: accelerator of each rank, () where no blocks fit. words: how groups
    lie on them. are_faster: than on consecutive accelerators."""

    order: tuple[int, ...] = ()
    words: str = ""
    are_faster: bool = False


_KNOWN: "WeakKeyDictionary[Fabric, dict[tuple, Blocks]]" = WeakKeyDictionary()


def leading_axes(strategy: Strategy) -> dict[str, int]:
    """Return the degrees of tp and cp as far as ranks are numbered along them first; none where another axis is."""
    found: dict[str, int] = {}
    for axis in strategy.order:
        degree = getattr(strategy, axis)
        if axis in _WEIGHTS:
            found |= {axis: degree} if degree > 1 else {}
        elif degree is None or degree > 1:
            break
    return found


def mapped_ranks(strategy: Strategy, machine: Machine, linear: list[int]) -> tuple[list[int], str]:
    """Return the accelerator of each rank with mapping auto or blocks, and a note that says so; "" without a choice.

    Args: linear: the accelerators of the linear mapping.
    """
    blocks = _blocks(strategy, machine, linear)
    if not blocks.order:
        return linear, ""
    asked = f"(strategy.mapping={strategy.mapping})"
    if blocks.are_faster or strategy.mapping == BLOCKS_MAPPING:
        return list(blocks.order), f"{NOTE}{blocks.words} {asked}"
    axes = " and ".join(leading_axes(strategy))
    return linear, f"{NOTE}consecutive accelerators, since blocks for {axes} would be no faster {asked}"


def _blocks(strategy: Strategy, machine: Machine, linear: list[int]) -> Blocks:
    """Return the fabric's blocks on which groups are fastest.

    Model: orders of ``FabricConfig.compact_orders`` are compared, with each other and the linear one, by the time that
        all groups of tp, and of cp, take for a collective of 16 MiB at once, by ``_WEIGHTS``. Blocks with failed
        accelerators are left out where enough others are whole; else what is left over fills the last groups.
    Cost: some ten algorithms predicted for each order, once per fabric.
    """
    levels, fabric = leading_axes(strategy), machine.fabric
    if not levels or fabric.is_circuit_switched:
        return Blocks()
    algorithms = tuple(sorted((key, str(value)) for key, value in strategy.algorithms.items()))
    key = (tuple(levels.items()), len(linear), strategy.rules.cp_algorithm, algorithms, strategy.max_circuit_degree)
    known = _KNOWN.setdefault(fabric, {})
    if key not in known:
        known[key] = _fastest(strategy, machine, levels, linear)
    return known[key]


def _fastest(strategy: Strategy, machine: Machine, levels: dict[str, int], linear: list[int]) -> Blocks:
    num_blocks = len(linear) // math.prod(levels.values())
    weigher = _Weigher(machine.fabric, strategy, levels)
    orders = machine.fabric.config.compact_orders(tuple(levels.values()), num_blocks)
    best, least = Blocks(), math.inf
    for one in orders:
        filled = _filled(one, machine, levels, len(linear))
        if filled != linear and (seconds := weigher.seconds(filled)) < least:
            best, least = Blocks(tuple(filled), _described(one, levels)), seconds
    return replace(best, are_faster=least < weigher.seconds(linear) * _GAIN) if best.order else best


def _described(order: CompactOrder, levels: dict[str, int]) -> str:
    """Return how groups lie, as "tp groups on blocks of 2 x 2, cp groups on 2 x 1 of these"."""
    parts = [
        f"{axis} groups on {'blocks of ' if not number else ''}{' x '.join(map(str, box))}"
        f"{' of these' if number else ''}"
        for number, (axis, box) in enumerate(zip(levels, order.sides, strict=True))
    ]
    return ", ".join(parts)


def _filled(order: CompactOrder, machine: Machine, levels: dict[str, int], count: int) -> list[int]:
    """Return the first ``count`` working accelerators of an order, whole blocks before what failures left of others."""
    alive = np.isin(order.order, machine.healthy_accelerators)
    size, covered = math.prod(levels.values()), order.num_covered
    is_whole = np.repeat(alive[:covered].reshape(-1, size).all(axis=1), size)
    is_first = np.concatenate([is_whole, np.zeros(len(alive) - covered, bool)])
    return [*order.order[is_first].tolist(), *order.order[~is_first & alive].tolist()][:count]


class _Weigher:
    """Times of orders of the same ranks on one fabric; equal groups are routed once."""

    def __init__(self, fabric: Fabric, strategy: Strategy, levels: dict[str, int]) -> None:
        self.fabric, self.strategy, self.levels = fabric, strategy, levels
        self._known: dict[tuple[str, bytes], float] = {}

    def seconds(self, ranks: list[int]) -> float:
        """Return the weighted time of a collective of every axis [s]; infinity where one cannot be routed."""
        size = math.prod(self.levels.values())
        blocks = np.array(ranks, dtype=np.int64).reshape(-1, size)
        half = max(1, _MOST_RANKS // size // 2)
        if len(blocks) > 2 * half:
            blocks = np.concatenate([blocks[:half], blocks[-half:]])
        by_axis = blocks.reshape(len(blocks), *reversed(self.levels.values()))
        total = 0.0
        for number, axis in enumerate(self.levels):
            groups = np.moveaxis(by_axis, -1 - number, -1).reshape(-1, self.levels[axis])
            name = (axis, groups.tobytes())
            if name not in self._known:
                self._known[name] = self._group_seconds(axis, groups)
            total += _WEIGHTS[axis] * self._known[name]
        return total

    def _group_seconds(self, axis: str, groups: np.ndarray) -> float:
        collective = "all_reduce" if axis == "tp" else _CP_COLLECTIVES[self.strategy.rules.cp_algorithm]
        algorithm = self.strategy.algorithms.get(collective, AUTO)
        try:
            key = schedule_of_groups(
                self.fabric, groups, collective, _SIZE, algorithm=algorithm,
                is_limited=self.strategy.max_circuit_degree is not None, label=axis,
            )  # fmt: skip
            placed = (in_grid_order if key.grid else in_server_order)(self.fabric, groups)
            costs = group_costs(
                self.fabric, collective, key.algorithm, placed, group_size=key.group_size, grid=key.grid,
                num_pieces=key.num_pieces, rings=key.rings,
            )  # fmt: skip
            return costs.time_s(_SIZE, transport(self.fabric, key, _SIZE))
        except (ConfigError, NoRouteError):
            return math.inf
