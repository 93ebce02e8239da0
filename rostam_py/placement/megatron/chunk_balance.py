"""Balance the devices of a pipeline that hold several chunks each, from cuts that balance the chunks."""

from collections.abc import Sequence

import numpy as np


def devices_of(num_stages: int, num_devices: int, is_v: bool = False) -> np.ndarray:
    """Return the device of every stage, int array (num_stages,): round and round, or there and back in a V."""
    turns, places = np.divmod(np.arange(num_stages), num_devices)
    return np.where(turns % 2 == 1, num_devices - 1 - places, places) if is_v else places


def balance_devices(seconds: np.ndarray, cuts: Sequence[int], bounds: list[int], devices: np.ndarray) -> list[int]:
    """Return cuts whose slowest device is faster, where there are any.

    Model: pieces between candidate cuts move, one at a time, from one stage to another, all cuts in between by one
        candidate, while that shortens the work of the slowest device; among equals of the second, and so on, then of
        the slowest stages. A local search: it ends where no move helps.
    Args:
        seconds: of every op in order.
        cuts: candidates, ascending.
        bounds: of them, where the stages begin.
        devices: of every stage.
    Cost: for each move stages^2 / devices, times stages.
    """
    ends = np.array([0, *cuts, len(seconds)])
    prefix = np.concatenate([[0.0], np.cumsum(seconds)])[ends]
    quantum = max(prefix[-1], 1e-30) * 1e-9  # closer than this is equal
    chosen = np.concatenate([[0], np.searchsorted(ends, bounds), [len(ends) - 1]])
    best = _order(prefix, chosen[None], devices, quantum)[0]
    while True:
        work = np.diff(prefix[chosen])
        slowest = int(np.argmax(np.bincount(devices, weights=work)))
        moves = _moves(chosen, np.flatnonzero(devices == slowest))
        if not len(moves):
            break
        orders = _order(prefix, moves, devices, quantum)
        first = int(np.lexsort(orders.T[::-1])[0])
        if tuple(orders[first]) >= tuple(best):
            break
        chosen, best = moves[first], orders[first]
    return [int(ends[k]) for k in chosen[1:-1]]


def _moves(chosen: np.ndarray, sources: np.ndarray) -> np.ndarray:
    """Return the cuts after each move of a piece from one of the stages, int array (moves, stages + 1)."""
    num_stages = len(chosen) - 1
    found = []
    for source in sources:
        if chosen[source + 1] - chosen[source] < 2:
            continue
        for target in range(num_stages):
            if target != source:
                moved = chosen.copy()
                if target > source:
                    moved[source + 1 : target + 1] -= 1
                else:
                    moved[target + 1 : source + 1] += 1
                found.append(moved)
    return np.array(found, dtype=np.int64).reshape(-1, num_stages + 1)


def _order(prefix: np.ndarray, chosen: np.ndarray, devices: np.ndarray, quantum: float) -> np.ndarray:
    """Return what is compared: work of the devices, then of the stages, each the largest first, in quanta."""
    work = np.diff(prefix[chosen], axis=1)
    by_device = np.argsort(devices, kind="stable").reshape(devices.max() + 1, -1)  # stages of each device
    parts = [-np.sort(-np.round(one / quantum), axis=1) for one in (work[:, by_device].sum(axis=2), work)]
    return np.concatenate(parts, axis=1)
