"""FaultTrace: when which servers of a cluster do not work, recorded or drawn.

Example:
    trace = FaultTrace.read("faults.csv")        # start_days,end_days,server,class,...; or start_s,end_s
    trace.per_1000_server_days, trace.share_down, trace.quantile_down(0.95)
    FaultTrace.drawn(num_servers=400, window="348 days", mtbf="240 days", repair="130 h", seed=1)

Legend: faults of one server that overlap are one time without it, but two faults.
"""

import csv
import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rostam_py.checks import check_seed, is_integer
from rostam_py.errors import ConfigError
from rostam_py.units import parse_time

DAY_S, HOUR_S = 86_400.0, 3_600.0
_MOST_DRAWN = 5_000_000  # some minutes of replaying
_UNITS = {"days": DAY_S, "hours": HOUR_S, "s": 1.0}
# Classes of recorded faults that take a server and cut no job: tests found them (InfiniteHBD's trace).
FOUND_BY_TESTS = ("Stress Test Failure", "Training Task Troubleshooting", "Test")


class ServerFault(NamedTuple):
    """From ``start_s`` to ``end_s`` a server does not work [s].

    cuts: a job on it is cut; otherwise it is only taken when it is next given out. cause: in the trace's words.
    """

    start_s: float
    end_s: float
    server: int
    cuts: bool = True
    cause: str = ""


@dataclass(frozen=True)
class FaultTrace:
    """Faults of servers 0 to num_servers - 1 that begin in a window from 0 on, in order of their starts.

    Raises: ConfigError for a fault that begins outside the window or ends before it begins, or an unknown server.
    """

    faults: tuple[ServerFault, ...]
    num_servers: int
    window_s: float

    def __post_init__(self) -> None:
        if not is_integer(self.num_servers) or self.num_servers < 1:
            raise ConfigError(f"faults.num_servers is {self.num_servers!r}; it must be an integer >= 1")
        if not 0 < self.window_s < float("inf"):
            raise ConfigError(f"faults.window is {self.window_s!r}; it must be a time > 0")
        for number, one in enumerate(self.faults):
            if not 0 <= one.server < self.num_servers:
                raise ConfigError(f"faults[{number}].server is {one.server}; servers are 0 to {self.num_servers - 1}")
            if not 0 <= one.start_s < self.window_s or one.end_s < one.start_s:
                raise ConfigError(
                    f"faults[{number}] is from {one.start_s!r} to {one.end_s!r} s; it must begin in the window of"
                    f" {self.window_s!r} s and not end before it begins"
                )
        object.__setattr__(self, "faults", tuple(sorted(self.faults)))

    @classmethod
    def read(
        cls, path: str | Path, *, num_servers: int | None = None, window: str | float | None = None,
        least_servers: int = 1,
    ) -> "FaultTrace":  # fmt: skip
        """Return a trace from a CSV file: a row for each fault.

        Model: columns start_days and end_days (or _hours, _s), server, and where there are any class (else level,
            cause) and cuts (true or false). Faults of FOUND_BY_TESTS cut no job unless cuts says so. "#" begins a
            comment.
        Args: num_servers: by default one more than the highest number, and at least ``least_servers``. window: by
            default until the last end [s or text]; faults that begin behind it are left out.
        Raises: ConfigError naming file, line, column and value.
        """
        where = Path(path)
        try:
            lines = where.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"fleet.faults is {str(path)!r}; the file cannot be read: {error}") from error
        kept = [(number, line) for number, line in enumerate(lines, 1) if line.strip() and line.lstrip()[0] != "#"]
        rows = list(csv.DictReader(line for _, line in kept))
        if not rows:
            raise ConfigError(f"fleet.faults is {str(path)!r}; the file has no row")
        unit = _unit_of(rows[0], str(path))
        numbers = [number for number, _ in kept[1:]]
        faults = [_fault(row, unit, f"{path}, line {number}") for row, number in zip(rows, numbers, strict=True)]
        highest = max(least_servers, max(one.server for one in faults) + 1)
        window_s = max(one.end_s for one in faults) if window is None else parse_time(window, "window")
        inside = tuple(one for one in faults if one.start_s < window_s)
        return cls(inside, num_servers or highest, window_s)

    @classmethod
    def drawn(
        cls, *, num_servers: int, window: str | float, mtbf: str | float, repair: str | float, seed: int = 0,
        cutting: float = 1.0,
    ) -> "FaultTrace":  # fmt: skip
        """Return faults that are memoryless: exponential times between a server's repair and its next fault.

        Model: every server works for an exponential time of mean ``mtbf`` and is repaired for one of mean ``repair``;
            each has a random stream of its own, so that a larger cluster has the faults of a smaller one and more.
        Args: window, mtbf, repair: [s or text], > 0; mtbf of one server. cutting: share of faults that cut a job.
        """
        window_s, mtbf_s, repair_s = (
            parse_time(value, key) for key, value in (("window", window), ("mtbf", mtbf), ("repair", repair))
        )
        for key, value in (("window", window_s), ("mtbf", mtbf_s), ("repair", repair_s)):
            if value <= 0:
                raise ConfigError(f"{key} is {value!r}; it must be a time > 0")
        expected = num_servers * window_s / (mtbf_s + repair_s)
        if expected > _MOST_DRAWN:
            raise ConfigError(
                f"{expected:,.0f} faults would be drawn, of {num_servers:,} servers in {window_s / DAY_S:,.0f} days; at"
                f" most {_MOST_DRAWN:,} are: take a shorter window"
            )
        seed = check_seed("seed", seed)
        faults: list[ServerFault] = []
        for server in range(num_servers):
            draw = np.random.default_rng([seed, *b"faults", server])
            now = draw.exponential(mtbf_s)
            while now < window_s:
                end = now + draw.exponential(repair_s)
                faults.append(ServerFault(now, end, server, cutting == 1 or bool(draw.random() < cutting)))
                now = end + draw.exponential(mtbf_s)
        return cls(tuple(faults), num_servers, window_s)

    def memoryless(self, seed: int = 0) -> "FaultTrace":
        """Return drawn faults of equal means: a working server's time to a fault, time down, share that cuts a job."""
        if not self.faults:
            return self
        times = len(self.times_down)
        cutting = sum(one.cuts for one in self.faults) / len(self.faults)
        return FaultTrace.drawn(
            num_servers=self.num_servers, window=self.window_s, mtbf=self._working_s / times,
            repair=max(sum(self.down_s) / times, 1e-9), seed=seed, cutting=cutting,
        )  # fmt: skip

    @property
    def _working_s(self) -> float:
        return self.num_servers * self.window_s - sum(self.down_s)

    @property
    def mtbf_s(self) -> float:
        """Mean working time of one server between faults that cut a job [s]; infinite without any."""
        cuts = sum(one.cuts for one in self.faults)
        return self._working_s / cuts if cuts else math.inf

    # Statistics

    @property
    def server_days(self) -> float:
        """Servers x days of the window."""
        return self.num_servers * self.window_s / DAY_S

    @property
    def per_1000_server_days(self) -> float:
        """Faults for each 1,000 days of a server."""
        return 1_000 * len(self.faults) / self.server_days

    def only(self, causes: Iterable[str]) -> "FaultTrace":
        """Return the faults whose cause begins with one of these words."""
        starts = tuple(causes)
        return FaultTrace(
            tuple(one for one in self.faults if one.cause.startswith(starts)), self.num_servers, self.window_s
        )

    @functools.cached_property
    def times_down(self) -> tuple[tuple[float, float, int], ...]:
        """(start, end, server) of each time without a server, in order; overlaps are one, cut by the window."""
        found: list[tuple[float, float, int]] = []
        by_server: dict[int, list[ServerFault]] = {}
        for one in self.faults:
            by_server.setdefault(one.server, []).append(one)
        for server, faults in by_server.items():
            start, end = faults[0].start_s, faults[0].end_s
            for one in faults[1:]:
                if one.start_s > end:
                    found.append((start, end, server))
                    start, end = one.start_s, one.end_s
                end = max(end, one.end_s)
            found.append((start, end, server))
        kept = [(start, min(end, self.window_s), server) for start, end, server in found if start < self.window_s]
        return tuple(sorted(kept))

    @property
    def down_s(self) -> tuple[float, ...]:
        """How long each time without a server is [s]."""
        return tuple(end - start for start, end, _ in self.times_down)

    @property
    def share_down(self) -> float:
        """Share of the servers' time that is lost."""
        return sum(self.down_s) / (self.num_servers * self.window_s)

    @functools.cached_property
    def _steps(self) -> tuple[np.ndarray, np.ndarray]:
        """Servers that are down from each moment to the next: (moments [s], counts), both (n,)."""
        starts, ends = (np.array([one[k] for one in self.times_down]) for k in (0, 1))
        at = np.concatenate([[0.0], starts, ends])
        change = np.concatenate([[0], np.ones(len(starts), int), -np.ones(len(ends), int)])
        order = np.lexsort((change, at))
        return at[order], np.cumsum(change[order])

    @property
    def _held_s(self) -> np.ndarray:
        return np.diff(np.append(self._steps[0], self.window_s))

    @property
    def mean_down(self) -> float:
        """Servers that are down, mean over time."""
        return float((self._steps[1] * self._held_s).sum() / self.window_s)

    @property
    def most_down(self) -> int:
        """Servers that are down at once, at most."""
        return int(self._steps[1][self._held_s > 0].max())

    def quantile_down(self, share: float) -> int:
        """Return the number of servers that is not exceeded for a share of the time."""
        order = np.argsort(self._steps[1], kind="stable")
        passed = np.cumsum(self._held_s[order]) / self.window_s
        return int(self._steps[1][order][np.searchsorted(passed, share - 1e-12)])

    def share_of_time_above(self, num_down: int) -> float:
        """Return the share of the time in which more servers than this are down."""
        return float(self._held_s[self._steps[1] > num_down].sum() / self.window_s)

    @property
    def repair_s(self) -> np.ndarray:
        """Repair times of the faults, (faults,) [s]."""
        return np.array([one.end_s - one.start_s for one in self.faults])

    @property
    def cv_between(self) -> float:
        """Standard deviation over mean of the times between faults of the cluster; 1 of memoryless ones."""
        gaps = np.diff([one.start_s for one in self.faults])
        return float(gaps.std(ddof=1) / gaps.mean())

    def share_on_worst(self, num_servers: int) -> float:
        """Return the share of all faults that so many servers with the most have."""
        counts = np.sort(np.bincount([one.server for one in self.faults], minlength=self.num_servers))[::-1]
        return float(counts[:num_servers].sum() / counts.sum())

    @property
    def num_failing(self) -> int:
        """Servers that fail at all."""
        return len({one.server for one in self.faults})


def _unit_of(row: dict[str, str], path: str) -> str:
    for unit in _UNITS:
        if f"start_{unit}" in row and f"end_{unit}" in row:
            missing = "server" if "server" not in row else ""
            if missing:
                raise ConfigError(f"fleet.faults is {path!r}; the file has no column {missing!r}")
            return unit
    raise ConfigError(
        f"fleet.faults is {path!r}; the file must have the columns start_days and end_days (or _hours, or _s) and"
        f" server; it has: {', '.join(map(str, row))}"
    )


def _fault(row: dict[str, str], unit: str, where: str) -> ServerFault:
    def number(column: str) -> float:
        try:
            return float(row[column])
        except (TypeError, ValueError):
            raise ConfigError(f"{where}: {column} is {row[column]!r}; it must be a number") from None

    server, start, end = number("server"), number(f"start_{unit}"), number(f"end_{unit}")
    if not 0 <= start <= end:
        raise ConfigError(f"{where}: the fault is from {start:g} to {end:g} {unit}; it must not end before it begins")
    if server != int(server):
        raise ConfigError(f"{where}: server is {row['server']!r}; it must be an integer")
    cause = next((row[key] for key in ("class", "level", "cause") if row.get(key)), "")
    named = ", ".join(dict.fromkeys(row[key] for key in ("level", "class") if row.get(key))) or cause
    cuts = (row.get("cuts") or "").strip().lower()
    cuts = {"1": "true", "0": "false"}.get(cuts, cuts)
    if cuts not in ("", "true", "false"):
        raise ConfigError(f"{where}: cuts is {row['cuts']!r}; it must be true or false")
    does_cut = cuts == "true" if cuts else cause not in FOUND_BY_TESTS[:2]
    scale = _UNITS[unit]
    return ServerFault(start * scale, end * scale, int(server), does_cut, named)
