"""FleetOptions: weeks of one job or of many, faults, and how they are answered."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from rostam_py.checks import check_seed, is_integer
from rostam_py.errors import ConfigError
from rostam_py.field_words import written
from rostam_py.plan.failures import BATCHES
from rostam_py.spec.queue_options import NO_FAULTS, QueueOptions
from rostam_py.units import parse_bandwidth, parse_size, parse_time

_TIME = {"unit": "time"}


def _written(value: Any) -> str:
    """Return a value as the command line writes it, text in quotes."""
    return "null" if value is None else repr(value) if isinstance(value, str) else written(value)


def _policies() -> Iterable[str]:
    from rostam_py.fleet.goodput.names import POLICIES

    return POLICIES


@dataclass(kw_only=True)
class FleetOptions(QueueOptions):
    """Faults of servers over weeks, and the answer to them.

    faults: CSV file of recorded faults (columns start_days, end_days and server, or _hours, _s); null draws them, none
        means that no server fails.
    servers: servers of the cluster that the faults are of; null takes the job's and its spares, or those that the file
        names where they are more.
    days: window; null takes that of the file, or 30 days; of many jobs, until the last has ended. Faults of the file
        that begin later are left out.
    mtbf: mean time between faults of one server, for drawn ones; by default 6.50 faults for 1,000 server-days, those of
        Meta's RSC-1 (arXiv 2410.21680).
    repair: their mean repair time; by default that of InfiniteHBD's 400 servers.
    memoryless: replace recorded faults by drawn ones of the same means (needs faults).
    policies: answers to compare, of rostam list policies.
    spares: servers that stand by.
    accelerators_per_server: those that fail together, and that small jobs share; null takes the fabric's.
    checkpoint_every: time between checkpoints; null takes Young's and Daly's optimum, sqrt(2 C M) - C, with C the time
        of one and M the mean time between cuts of the job: mtbf over its servers, or that of the recorded faults.
    checkpoint: how long the job stops for one.
    asynchronous: the job stops only until a checkpoint is copied (checkpoint), and goes on while it is written to
        storage, over links that its own messages use (needs storage_bandwidth).
    storage_bandwidth: that storage takes from the whole job, asynchronous; null where the stop is for all of it.
    checkpoint_bytes: size of one, asynchronous; null takes weights and optimizer state.
    detection: from a fault until it is known.
    restart: from there, with all servers at hand, until the first iteration, assumed.
    rejoin: how long all wait while a replica comes back (policy rejoin).
    reshard: as restart, where replicas change their shape (policy ragged); null takes restart's.
    batch: global batch of a job on fewer replicas: shrink, as many samples on each as before; keep, the whole batch,
        which their number must divide.
    seed: of drawn faults and jobs.
    break_even: also replay other numbers of spares and times between checkpoints, drawn faults five times.
    """

    faults: str | None = None
    servers: int | None = None
    days: float | None = None
    mtbf: Any = field(default="153.8 d", metadata=_TIME)
    repair: Any = field(default="132.8 h", metadata=_TIME)
    memoryless: bool = False
    policies: list[str] = field(
        default_factory=lambda: ["wait", "spares", "shrink", "rejoin"], metadata={"choices": _policies}
    )
    spares: int = 0
    accelerators_per_server: int | None = None
    checkpoint_every: Any = field(default=None, metadata=_TIME)
    checkpoint: Any = field(default="30 s", metadata=_TIME)
    asynchronous: bool = False
    storage_bandwidth: Any = field(default=None, metadata={"unit": "bandwidth"})
    checkpoint_bytes: Any = field(default=None, metadata={"unit": "size"})
    detection: Any = field(default="1 min", metadata=_TIME)
    restart: Any = field(default="10 min", metadata=_TIME)
    rejoin: Any = field(default="2 min", metadata=_TIME)
    reshard: Any = field(default=None, metadata=_TIME)
    batch: str = field(default="shrink", metadata={"choices": BATCHES})
    seed: int = 0
    break_even: bool = True

    def unread_keys(self) -> tuple[str, ...]:
        """Return a note for every key that differs from its default and that nothing reads, because of another."""
        is_drawn = self.faults is None or self.memoryless or (self.jobs is not None and not self.is_file())
        needs = {
            "memoryless": (self.faults not in (None, NO_FAULTS), "fleet.faults, recorded ones to replace"),
            "mtbf": (self.faults is None, "drawn faults, without fleet.faults"),
            "repair": (self.faults is None, "drawn faults, without fleet.faults"),
            "seed": (is_drawn, "drawn faults: no fleet.faults, or fleet.memoryless=true"),
            "batch": (
                bool({"shrink", "rejoin", "ragged"} & {*self.policies}),
                "a policy that goes on with fewer replicas",
            ),
            "rejoin": ("rejoin" in self.policies, "fleet.policies to hold rejoin"),
            "storage_bandwidth": (self.asynchronous, "fleet.asynchronous=true"),
            "checkpoint_bytes": (self.asynchronous, "fleet.asynchronous=true"),
            "reshard": ("ragged" in self.policies, "fleet.policies to hold ragged"),
        } | {key: need for key, need in self.unread_queue_keys().items() if not need[0]}
        default = FleetOptions()
        return tuple(
            f"fleet.{key} is {_written(getattr(self, key))}, which has no effect: it needs {need}"
            for key, (is_read, need) in needs.items()
            if not is_read and getattr(self, key) != getattr(default, key)
        )

    def __post_init__(self) -> None:
        self.check_queue()
        self.seed = check_seed("fleet.seed", self.seed)
        for key, least in (("servers", 1), ("spares", 0), ("accelerators_per_server", 1)):
            value = getattr(self, key)
            if value is not None and (not is_integer(value) or value < least):
                raise ConfigError(f"fleet.{key} is {value!r}; it must be an integer >= {least}")
        if self.days is not None and not self.days > 0:
            raise ConfigError(f"fleet.days is {self.days!r}; it must be a number > 0")
        self._check_times()
        self._check_writing()
        if self.batch not in BATCHES:
            raise ConfigError(f"fleet.batch is {self.batch!r}; it must be one of: {', '.join(BATCHES)}")
        self._check_policies()

    def _check_times(self) -> None:
        """Raise ConfigError for a time that is none; null stands for something in two keys alone."""
        for key in ("mtbf", "repair", "checkpoint", "detection", "restart", "rejoin", "checkpoint_every", "reshard"):
            value = getattr(self, key)
            default = next(entry.default for entry in fields(self) if entry.name == key)
            if value is None and default is not None:
                raise ConfigError(f"fleet.{key} is null; it must be a time, such as the default, {default!r}")
            is_positive = key in ("mtbf", "repair", "checkpoint_every")
            if value is not None and parse_time(value, f"fleet.{key}") <= 0 and is_positive:
                raise ConfigError(f"fleet.{key} is {value!r}; it must be a time > 0")

    def _check_policies(self) -> None:
        from rostam_py.fleet.goodput.names import POLICIES

        self.policies = [self.policies] if isinstance(self.policies, str) else list(self.policies)
        for name in self.policies:
            if name not in POLICIES:
                raise ConfigError(f"fleet.policies holds {name!r}; they may be: {', '.join(POLICIES)}")
        if not self.policies:
            raise ConfigError(f"fleet.policies is []; it must hold at least one of: {', '.join(POLICIES)}")

    def _check_writing(self) -> None:
        if self.asynchronous and self.storage_bandwidth is None:
            raise ConfigError(
                "fleet.asynchronous is true, but fleet.storage_bandwidth is null; it must be what storage takes from"
                " the job, such as '100 GB/s'"
            )
        for key, parse in (("storage_bandwidth", parse_bandwidth), ("checkpoint_bytes", parse_size)):
            value = getattr(self, key)
            if value is not None and not parse(value, f"fleet.{key}") > 0:
                raise ConfigError(f"fleet.{key} is {value!r}; it must be > 0")
