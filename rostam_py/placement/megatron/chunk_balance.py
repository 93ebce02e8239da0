"""Balance the devices of a pipeline that hold several chunks each, from cuts that balance the chunks."""

from collections.abc import Sequence

import numpy as np


def balance_devices(seconds: np.ndarray, cuts: Sequence[int], bounds: list[int], num_devices: int) -> list[int]:
    """Return cuts whose slowest device is faster, where there are any.

    Model: pieces between candidate cuts move, one at a time, from one stage to another, all cuts in between by one
        candidate, while that shortens the work of the slowest device; among equals of the second, and so on, then of
        the slowest stages. Stage k is on device k mod num_devices. A local search: it ends where no move helps.
    Args:
        seconds: of every op in order.
        cuts: candidates, ascending.
        bounds: of them, where the stages begin.
    Cost: for each move stages^2 / devices, times stages.
    """
    ends = np.array([0, *cuts, len(seconds)])
    prefix = np.concatenate([[0.0], np.cumsum(seconds)])[ends]
    quantum = max(prefix[-1], 1e-30) * 1e-9  # closer than this is equal
    chosen = np.concatenate([[0], np.searchsorted(ends, bounds), [len(ends) - 1]])
    best = _order(prefix, chosen[None], num_devices, quantum)[0]
    while True:
        work = np.diff(prefix[chosen])
        slowest = int(np.argmax(np.bincount(np.arange(len(work)) % num_devices, weights=work)))
        moves = _moves(chosen, slowest, num_devices)
        if not len(moves):
            break
        orders = _order(prefix, moves, num_devices, quantum)
        first = int(np.lexsort(orders.T[::-1])[0])
        if tuple(orders[first]) >= tuple(best):
            break
        chosen, best = moves[first], orders[first]
    return [int(ends[k]) for k in chosen[1:-1]]


def _moves(chosen: np.ndarray, device: int, num_devices: int) -> np.ndarray:
    """Return the cuts after each move of a piece from a stage of the device, int array (moves, stages + 1)."""
    num_stages = len(chosen) - 1
    found = []
    for source in range(device, num_stages, num_devices):
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


def _order(prefix: np.ndarray, chosen: np.ndarray, num_devices: int, quantum: float) -> np.ndarray:
    """Return what is compared: work of the devices, then of the stages, each the largest first, in quanta."""
    work = np.diff(prefix[chosen], axis=1)
    devices = work.reshape(len(chosen), -1, num_devices).sum(axis=1)
    parts = [-np.sort(-np.round(one / quantum), axis=1) for one in (devices, work)]
    return np.concatenate(parts, axis=1)
