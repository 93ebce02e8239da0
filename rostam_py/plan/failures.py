"""Failures in flight: parts that fail and are repaired during a run, and the response to them (MODEL F19).

Example:
    simulate(plan, events=[Failure("2 ms", "links", 17)], recovery=Recovery(detection="1 ms", reroute="500 us"))
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from rostam_py.checks import check_integers, check_seed, is_integer
from rostam_py.errors import ConfigError
from rostam_py.fabrics.failures import check_choice
from rostam_py.plan.failure_file import FailureList
from rostam_py.units import parse_time

# What may fail during a run, and what its number is.
FAILING_KINDS = {
    "links": "a cable, both directions: the field cable of fabric.links; of optical switches the port of accelerator a"
    " at switch k: a x switches + k; of an optical ring a fibre's segment: 2 x position + fibre",
    "switches": "a switch of plane p: p x (switches of a plane) + its number there; an optical one in all planes",
    "accelerators": "an accelerator, in all planes",
    "boards": "a board with all accelerators on it",
    "planes": "all cables of one plane",
    "wavelengths": "a wavelength of one fibre of an optical ring, all the way round: fibre x W + wavelength",
    "micro_rings": "a stuck micro-ring, which neither sends nor receives its wavelength nor lets it pass:"
    " (accelerator x 2 + fibre) x W + wavelength",
}
_TIME = {"unit": "time"}
_EVENT = "such as {time: 2 ms, kind: links, number: 17, repair: 1 s}"


@dataclass(frozen=True, slots=True)
class Failure:
    """From ``time`` on a part does not work, until ``repair``.

    Its links carry nothing; messages on them wait until routes are recomputed (Recovery) or it is repaired. A job
    with a device on a failed accelerator, or on one that nothing reaches any more, is cut. Where it is part of an
    optical fabric, circuits through it are dark in all planes until they are set around it (Recovery).
    time, repair: seconds or text with a unit; repair None: it stays failed. kind, number: of the part, as FAILING_KINDS
    says.
    """

    time: str | float = field(metadata=_TIME)
    kind: str
    number: int
    repair: str | float | None = field(default=None, metadata=_TIME)

    def __post_init__(self) -> None:
        start = parse_time(self.time, "failure.time")
        check_choice("failure.kind", self.kind, FAILING_KINDS)
        if not is_integer(self.number) or self.number < 0:
            what = FAILING_KINDS[self.kind]
            raise ConfigError(f"failure.number is {self.number!r}; it must be an integer >= 0: {what}")
        if self.repair is not None and parse_time(self.repair, "failure.repair") <= start:
            raise ConfigError(f"failure.repair is {self.repair!r}; it must be later than failure.time, {self.time!r}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovery:
    """The response to failures.

    detection: from a failure until it is known, and from a repair until messages may take the part again. reroute:
    from then until messages, those under way included, take routes among what works, or circuits around what has failed
    begin to be set, which takes the fabric's reconfiguration_delay in addition. restart: from the detection of a lost
    accelerator until the job goes on, the load of its checkpoint included. checkpoint_iterations: iterations from one
    checkpoint to the next; 0: there are none. spares: accelerators that take the place of failed ones, in this order; a
    repaired one is a spare again. A job that needs more than there are waits for repairs, which it knows of at once,
    and restart begins behind them: it is down until max(detection, repair) + restart. Where an accelerator that it is
    to go on with fails before it does, detection, spare or repair, and restart begin anew.
    """

    detection: str | float = 0.0
    reroute: str | float = 0.0
    restart: str | float = 0.0
    checkpoint_iterations: int = 1
    spares: Sequence[int] = ()

    def __post_init__(self) -> None:
        for key in ("detection", "reroute", "restart"):
            parse_time(getattr(self, key), f"recovery.{key}")
        if not is_integer(self.checkpoint_iterations) or self.checkpoint_iterations < 0:
            raise ConfigError(
                f"recovery.checkpoint_iterations is {self.checkpoint_iterations!r}; it must be an integer >= 0"
            )
        check_integers("recovery.spares", self.spares)

    @property
    def reroute_s(self) -> float:
        """From a failure to new routes [s]."""
        return self.detection_s + parse_time(self.reroute, "recovery.reroute")

    @property
    def detection_s(self) -> float:
        """From a failure until it is known [s]."""
        return parse_time(self.detection, "recovery.detection")

    @property
    def restart_s(self) -> float:
        """From the detection of a loss, or the repair that a job waits for, until it goes on [s]."""
        return parse_time(self.restart, "recovery.restart")


_DEFAULT = Recovery()
# What keys need to be read.
_FAILS = "something that fails, outages.events or a mean time such as outages.mtbf_links"
_DRAWS = "failures that are drawn, by a mean time such as outages.mtbf_links; events have a repair of their own"

# How a job shrinks that goes on with its whole replicas.
BATCHES = {
    "keep": "the same global batch: more samples on each replica that is left",
    "shrink": "as many micro-batches on each replica as before, and so a smaller global batch",
}


@dataclass(kw_only=True)
class Outages:
    """What fails during a run of some iterations, and the response to it; nothing by default.

    events: failures, each a mapping of the fields of Failure, or the path of a CSV file of them (failure_file.py), in
    whose place its rows then stand. mtbf_links and so on: mean time between failures of one
    part, from which more are drawn, exponentially, while the run lasts; None: none. repair: how long after its failure
    a drawn part works again; None: never. iterations: that are run. seed: of the draw. shrink: of BATCHES, a job that
    loses accelerators goes on with the data-parallel replicas that are whole; None: on spares, or behind repairs. The
    others: as Recovery has them.
    """

    events: Any = field(default_factory=list, metadata={"schemas": lambda: [Failure]})
    mtbf_links: Any = field(default=None, metadata=_TIME)
    mtbf_switches: Any = field(default=None, metadata=_TIME)
    mtbf_accelerators: Any = field(default=None, metadata=_TIME)
    mtbf_boards: Any = field(default=None, metadata=_TIME)
    mtbf_planes: Any = field(default=None, metadata=_TIME)
    mtbf_wavelengths: Any = field(default=None, metadata=_TIME)
    mtbf_micro_rings: Any = field(default=None, metadata=_TIME)
    repair: Any = field(default=None, metadata=_TIME)
    iterations: int = 10
    seed: int = 0
    detection: Any = field(default=_DEFAULT.detection, metadata=_TIME)
    reroute: Any = field(default=_DEFAULT.reroute, metadata=_TIME)
    restart: Any = field(default=_DEFAULT.restart, metadata=_TIME)
    checkpoint_iterations: int = _DEFAULT.checkpoint_iterations
    spares: Any = field(default_factory=list)
    shrink: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.events, str):
            self.events = FailureList.read(self.events, Failure)
        for kind, seconds in self.mtbf_s().items():
            if seconds <= 0:
                given = getattr(self, f"mtbf_{kind}")
                raise ConfigError(f"outages.mtbf_{kind} is {given!r}; it must be a time > 0, or null for no failures")
        if self.repair is not None and parse_time(self.repair, "outages.repair") <= 0:
            raise ConfigError(f"outages.repair is {self.repair!r}; it must be a time > 0, or null for never")
        if not is_integer(self.iterations) or self.iterations < 1:
            raise ConfigError(f"outages.iterations is {self.iterations!r}; it must be an integer >= 1")
        self.seed = check_seed("outages.seed", self.seed)
        if self.shrink is not None and self.shrink not in BATCHES:
            raise ConfigError(f"outages.shrink is {self.shrink!r}; it must be one of: {', '.join(BATCHES)}, or null")
        self.failures()
        self.recovery()
        if self.shrink is not None and list(self.spares):
            raise ConfigError(
                f"outages.spares is {list(self.spares)!r} and outages.shrink is {self.shrink!r}; give one or the other"
            )

    @property
    def is_none(self) -> bool:
        """Whether nothing fails."""
        return not self.events and not self.mtbf_s()

    def unread_keys(self) -> tuple[str, ...]:
        """Return a note for every key that differs from its default and that nothing reads, because of another."""
        drawing = [entry.name for entry in fields(self) if entry.name.startswith("mtbf_")]
        needs = {"repair": _DRAWS, "seed": _DRAWS} if not self.mtbf_s() else {}
        if self.is_none:
            fails = {"events", *drawing}
            needs = {entry.name: _FAILS for entry in fields(self) if entry.name not in fails}
        default = Outages()
        return tuple(
            f"outages.{key} is {getattr(self, key)!r}, which has no effect: it needs {need}"
            for key, need in needs.items()
            if getattr(self, key) != getattr(default, key)
        )

    def mtbf_s(self) -> dict[str, float]:
        """Return the mean time between failures of one part by kind, where one is given [s]."""
        given = {kind: getattr(self, f"mtbf_{kind}") for kind in FAILING_KINDS}
        return {kind: parse_time(time, f"outages.mtbf_{kind}") for kind, time in given.items() if time is not None}

    def place_of(self, number: int) -> str:
        """Return what errors call an event: by its file and line, or by its key and number."""
        places = getattr(self.events, "places", ())
        return f"{places[number]}: failure" if places else f"outages.events[{number}]"

    def failures(self) -> tuple[Failure, ...]:
        """Return the events.

        Raises: ConfigError for one that is no failure.
        """
        if not isinstance(self.events, Sequence):
            raise ConfigError(f"outages.events is {self.events!r}; it must be a list of failures, {_EVENT}")
        known = [entry.name for entry in fields(Failure)]
        found = []
        for number, event in enumerate(self.events):
            if isinstance(event, Failure):
                found.append(event)
                continue
            if not isinstance(event, Mapping) or not set(known[:3]) <= set(event) <= set(known):
                raise ConfigError(
                    f"outages.events[{number}] is {event!r}; each must have {', '.join(known[:3])} and may have"
                    f" {known[3]}, {_EVENT}"
                )
            try:
                found.append(Failure(**event))
            except ConfigError as error:
                raise type(error)(str(error).replace("failure.", f"outages.events[{number}].", 1)) from None
        return tuple(found)

    def recovery(self) -> Recovery:
        """Return the response to them."""
        try:
            return Recovery(**{entry.name: getattr(self, entry.name) for entry in fields(Recovery)})
        except ConfigError as error:
            raise type(error)(str(error).replace("recovery.", "outages.", 1)) from None
