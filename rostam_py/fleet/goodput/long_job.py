"""LongJob: a job that trains for weeks, as far as faults matter to it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rostam_py.checks import is_integer
from rostam_py.errors import ConfigError
from rostam_py.units import parse_time


class Pace(NamedTuple):
    """What a job does with a number of replicas: an iteration's time [s], and its share of the whole global batch."""

    iteration_s: float
    share: float = 1.0


@dataclass(frozen=True, kw_only=True)
class LongJob:
    """What a job needs, and what faults and checkpoints cost it.

    num_servers: that it runs on. replicas: those that can be lost one by one (layout.py: replicas that share a server
    are one here); they divide the servers evenly. units: servers of each; by default consecutive ones. iteration: of
    all replicas [s or text]. paces: number of replicas -> Pace, of those fewer with which it can go on; paces.py
    simulates them. parts: number of servers of a replica that lost some -> the share of its samples that it does in the
    same time; a replica of any other number is useless (parts.py). checkpoint_iterations: from one checkpoint to the
    next. checkpoint: how long the job stops for one. write_iterations: those behind the stop in which it is written, if
    it does not last until then; each takes write_stretch times as long (writing.py), and a fault among them undoes the
    work since the checkpoint before. detection: from a fault until it is known. restart: from there, with all servers
    at hand, until the first iteration, loading the checkpoint included. rejoin: how long all wait while a replica that
    comes back takes the others' state. reshard: as restart, of replicas that change their shape (policy ragged).
    """

    num_servers: int
    iteration: str | float = field(metadata={"unit": "time"})
    replicas: int = 1
    units: tuple[tuple[int, ...], ...] = ()
    paces: Mapping[int, Pace] = field(default_factory=dict)
    parts: Mapping[int, float] = field(default_factory=dict)
    checkpoint_iterations: int = 100
    write_iterations: int = 0
    write_stretch: float = 1.0
    checkpoint: str | float = field(default=0.0, metadata={"unit": "time"})
    detection: str | float = field(default=0.0, metadata={"unit": "time"})
    restart: str | float = field(default=0.0, metadata={"unit": "time"})
    rejoin: str | float = field(default=0.0, metadata={"unit": "time"})
    reshard: str | float = field(default=0.0, metadata={"unit": "time"})

    def __post_init__(self) -> None:
        for key in ("num_servers", "replicas", "checkpoint_iterations"):
            value = getattr(self, key)
            if not is_integer(value) or value < 1:
                raise ConfigError(f"fleet.{key} is {value!r}; it must be an integer >= 1")
        if self.num_servers % self.replicas:
            raise ConfigError(
                f"fleet.replicas is {self.replicas}; it must divide fleet.num_servers = {self.num_servers}: a replica"
                " has whole servers"
            )
        size = self.num_servers // self.replicas
        if not self.units:
            servers = range(self.num_servers)
            object.__setattr__(self, "units", tuple(tuple(servers[k : k + size]) for k in servers[::size]))
        if [len(unit) for unit in self.units] != [size] * self.replicas or sorted(sum(self.units, ())) != list(
            range(self.num_servers)
        ):
            raise ConfigError(
                f"fleet.units is {self.units!r}; it must list servers 0 to {self.num_servers - 1} once each, {size} for"
                f" each of {self.replicas} replicas"
            )
        for key in ("iteration", "checkpoint", "detection", "restart", "rejoin", "reshard"):
            object.__setattr__(self, key, parse_time(getattr(self, key), f"fleet.{key}"))
        if not is_integer(self.write_iterations) or not 0 <= self.write_iterations <= self.checkpoint_iterations:
            raise ConfigError(
                f"fleet.write_iterations is {self.write_iterations!r}; it must be an integer from 0 to"
                f" fleet.checkpoint_iterations = {self.checkpoint_iterations}: a checkpoint is written before the next"
            )
        if not 1 <= self.write_stretch < math.inf:
            raise ConfigError(f"fleet.write_stretch is {self.write_stretch!r}; it must be a number >= 1")
        if float(self.iteration) <= 0:
            raise ConfigError(f"fleet.iteration is {self.iteration!r}; it must be a time > 0")
        for left, share in self.parts.items():
            if not 0 < left < size or not 0 < share <= 1:
                raise ConfigError(
                    f"fleet.parts[{left}] is {share!r}; it must be of 1 to {size - 1} servers, and a share in (0, 1]"
                )

    @property
    def whole(self) -> Pace:
        """Of all replicas."""
        return Pace(float(self.iteration))

    @property
    def servers_of_replica(self) -> int:
        """Servers of one replica."""
        return self.num_servers // self.replicas

    @property
    def least_servers(self) -> int:
        """Servers with which a replica can work, at least."""
        return min(self.parts, default=self.servers_of_replica)

    def part(self, servers: int) -> float:
        """Return the share of a replica's samples that so many of its servers do."""
        return 1.0 if servers == self.servers_of_replica else self.parts[servers]

    def pace(self, replicas: int) -> Pace:
        """Return the pace of a number of replicas.

        Raises: ConfigError for a number that no pace is known of.
        """
        if replicas == self.replicas:
            return self.whole
        if replicas not in self.paces:
            raise ConfigError(
                f"fleet.paces has no {replicas} replicas; known are:"
                f" {', '.join(map(str, sorted(self.paces))) or 'none'}"
            )
        found = self.paces[replicas]
        if found.iteration_s <= 0 or not 0 < found.share <= 1:
            raise ConfigError(f"fleet.paces[{replicas}] is {tuple(found)}; a time is > 0, a share in (0, 1]")
        return found
