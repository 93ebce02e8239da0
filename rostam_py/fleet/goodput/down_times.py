"""Servers that are down over a window, as rows that a file or a figure can hold.

Example:
    down_rows(trace, num_servers=17)[0]          # (0.0, 0.0, 0): from the window's start, mean, most
"""

import numpy as np

from rostam_py.fleet.goodput.faults import FaultTrace

MOST_ROWS = 2_000


def down_rows(faults: FaultTrace, num_servers: int | None = None) -> list[tuple[float, float, int]]:
    """Return (start [s], servers down on average, at most) of each stretch of the window.

    Model: a row for each change in the number of servers down; where there are more than MOST_ROWS, one for each of
        that many equal stretches.
    Args: num_servers: count the first of them alone; None counts all.
    """
    first = faults.num_servers if num_servers is None else num_servers
    times = [(start, end) for start, end, server in faults.times_down if server < first and end > start]
    steps = sorted([(0.0, 0), *((start, 1) for start, _ in times), *((end, -1) for _, end in times)])
    at = np.array([one for one, _ in steps])
    down = np.cumsum([change for _, change in steps])
    last = np.append(np.diff(at) > 0, at[-1] < faults.window_s)  # of equal moments the last one holds
    at, down = at[last], down[last]
    if len(at) <= MOST_ROWS:
        return [(start, float(count), count) for start, count in zip(at.tolist(), down.tolist(), strict=True)]
    return _binned(at, down, faults.window_s)


def _binned(at: np.ndarray, down: np.ndarray, window_s: float) -> list[tuple[float, float, int]]:
    """Return the mean and the most of equal stretches. Args: at: moments, down: servers from each on, both (n,)."""
    edges = np.linspace(0.0, window_s, MOST_ROWS + 1)
    area = np.concatenate([[0.0], np.cumsum(down * np.diff(np.append(at, window_s)))])  # until each moment
    until = np.interp(edges, np.append(at, window_s), area)
    means = np.diff(until) / np.diff(edges)
    rows = []
    for k, mean in enumerate(means.tolist()):
        low = int(np.searchsorted(at, edges[k], side="right")) - 1
        high = int(np.searchsorted(at, edges[k + 1], side="left"))
        most = int(down[low : max(high, low + 1)].max())
        rows.append((float(edges[k]), min(mean, float(most)), most))
    return rows
