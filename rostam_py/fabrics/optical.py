"""What optical fabrics share: when their circuits are set, and what the core's controller of circuits is told."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np

from rostam_py.errors import ConfigError, UnknownNameError
from rostam_py.fabrics.config import FabricConfig
from rostam_py.fabrics.routings import base_of
from rostam_py.units import MAX_SIMULATED_S, check_simulated, parse_time

ONE_SHOT, PERIODIC = "one_shot", "periodic"
PORT, SWITCH, SEGMENT, WAVELENGTH, MICRO_RING = range(5)  # the core's kinds of parts that circuits go through
LONGEST_PERIOD_S = math.nextafter(MAX_SIMULATED_S, 0)  # that a configuration may have: it ends in no run
_NEVER_PS = -1  # the core's word for a period beyond simulated time


def circuit_controls() -> dict[str, str]:
    """Return when circuits may be set, one line each, by name."""
    from rostam_py import _core

    return {ONE_SHOT: "set once, for the traffic of a whole iteration", **dict(_core.switching_modes())}


def estimators() -> dict[str, str]:
    """Return what decisions on circuits may know of the traffic, one line each, by name."""
    from rostam_py import _core

    return dict(_core.estimators())


@dataclass(kw_only=True, slots=True)
class OpticalConfig(FabricConfig):
    """Parameters of every optical fabric: when circuits are set.

    Model: ``one_shot`` circuits are set before a job begins. Else they begin as those do (where not every pair finds a
        circuit, the largest demands have theirs) and are set anew in the run: what changes is dark for the
        reconfiguration delay and messages in flight there wait; the rest carries on. ``periodic``: every period for
        what the estimator says, or with period 0 whenever a message starts or ends. ``scheduled``: for each phase of
        the iteration, which a job's first iteration shows, as soon as the phase before is through; given up where
        iterations of a job that is alone take longer than on the circuits of before.
    Args:
        control: when circuits are set (rostam list circuit_controls).
        reconfiguration_delay: time for which changed circuits are dark.
        period: time between two decisions; null takes ``PERIODS`` delays.
        estimator: estimate of the traffic that a decision uses (rostam list estimators).
        reporting_delay: age of the traffic that it knows.
    """

    has_circuits: ClassVar[bool] = True
    # Delays in a period: both kinds of fabric name their own.
    PERIODS: ClassVar[int]
    # Routings that use a pair's own circuits, where these are set anew in addition to a network or servers.
    # Others take paths over pairs whose circuits may never be lit, or do so under load.
    ROUTINGS_ANEW: ClassVar[tuple[str, ...]] = ("hash", "spray")

    control: str = field(default=ONE_SHOT, metadata={"choices": circuit_controls})
    reconfiguration_delay: Any = field(default="10 ms", metadata={"unit": "time"})
    period: Any = field(default=None, metadata={"unit": "time"})
    estimator: str = field(default="last_window", metadata={"choices": estimators})
    reporting_delay: Any = field(default="0 s", metadata={"unit": "time"})

    def __post_init__(self) -> None:
        FabricConfig.__post_init__(self)
        for key, known in (("control", circuit_controls), ("estimator", estimators)):
            name, names = getattr(self, key), known()
            if not isinstance(name, str) or name not in names:
                raise UnknownNameError(f"fabric.{key} is {name!r}; registered: {', '.join(names)}")
        if self.control == ONE_SHOT or self.period is None:
            return
        delay, period = self._delay_s, parse_time(self.period, "fabric.period")
        if 0 < period < delay:
            raise ConfigError(
                f"fabric.period is {self.period!r}, less than fabric.reconfiguration_delay = "
                f"{self.reconfiguration_delay!r}: circuits would never be lit; use a longer one, or 0 s to decide"
                " whenever a message starts or ends"
            )

    @property
    def is_dynamic(self) -> bool:
        """Whether circuits are set anew during a run."""
        return self.control != ONE_SHOT

    @property
    def is_set_once(self) -> bool:
        """Whether circuits stay as they are set, except around parts that fail."""
        return not self.is_dynamic or self.period_s >= LONGEST_PERIOD_S

    def around_failures(self) -> "OpticalConfig":
        """Return this Config with a controller that sets circuits around parts that fail, and keeps those set once."""
        return self if self.is_dynamic else replace(self, control=PERIODIC, period=LONGEST_PERIOD_S)

    @property
    def period_s(self) -> float:
        """Time between two decisions [s]."""
        if self.period is not None:
            return parse_time(self.period, "fabric.period")
        return self.PERIODS * self._delay_s

    @property
    def _delay_s(self) -> float:
        return parse_time(self.reconfiguration_delay, "fabric.reconfiguration_delay")

    def unread_keys(self) -> tuple[str, ...]:
        """Return a note for every key of periodic decisions that is set where none is taken."""
        if self.control == PERIODIC:
            return ()
        default = {entry.name: entry.default for entry in fields(self)}
        return tuple(
            f"fabric.{key} is {getattr(self, key)!r}, which has no effect: it needs fabric.control={PERIODIC}"
            for key in ("period", "estimator", "reporting_delay")
            if getattr(self, key) != default[key]
        )

    @property
    def serves_all(self) -> bool:
        """Whether every pair gets a circuit at some time, though not all at once."""
        if self.is_set_once:
            return False
        return self.control != PERIODIC or self.estimator != "iteration"

    @property
    def serves_beyond_degree(self) -> bool:
        """Whether an accelerator may have more peers than circuits: by one circuit after another."""
        return self.serves_all

    def set_first(self, set_circuits: Callable[[bool], dict[str, Any]]) -> dict[str, Any]:
        """Return the circuits that a run begins with: those set once, or what fits where circuits may change.

        Args: set_circuits: sets them; its argument is whether pairs may be left out.
        Raises: ConfigError if pairs are left out and circuits are set once.
        """
        try:
            return set_circuits(False)
        except ConfigError:
            if not self.serves_all:
                raise
            return set_circuits(True)

    def switching_parameters(
        self, num_accelerators: int, src: np.ndarray, dst: np.ndarray, num_bytes: np.ndarray,
        circuit_bytes_per_s: float, latency_s: float,
    ) -> dict[str, Any]:  # fmt: skip
        """Return what every controller of circuits is told, in the core's units, without links and circuits.

        Args:
            src, dst: pairs that may send or relay, ascending.
            num_bytes: of each in an iteration; 0 for pairs that only relay.
            circuit_bytes_per_s: of one circuit of one plane.
            latency_s: of one circuit.
        """
        period_s = self.period_s
        return {
            "num_accelerators": [num_accelerators],
            "src": src.tolist(), "dst": dst.tolist(), "iteration_bytes": num_bytes.tolist(),
            "mode": self.control, "estimator": self.estimator,
            "period_ps": [_NEVER_PS if period_s >= LONGEST_PERIOD_S else picoseconds(period_s)],
            "delay_ps": [picoseconds(self._delay_s)],
            "reporting_delay_ps": [picoseconds(parse_time(self.reporting_delay, "fabric.reporting_delay"))],
            "circuit_bytes_per_s": [circuit_bytes_per_s], "circuit_latency_ps": [picoseconds(latency_s)],
        }  # fmt: skip


def refuse_dynamic(fabric: Any, what: str) -> None:
    """Raise ConfigError where circuits are set anew in a run, of which ``what`` knows nothing."""
    if fabric.config.is_dynamic:
        raise ConfigError(
            f"fabric.control is {fabric.config.control!r}, but {what} does not support circuits that change; use"
            f" fabric.control={ONE_SHOT}"
        )


def refuse_failures(fabric: Any, keys: Sequence[str]) -> None:
    """Raise ConfigError for parts that fail where circuits are set anew without support for failures.

    Args: fabric: a Fabric; all parts of those that are nothing but circuits may fail. keys: that are given.
    """
    if keys and fabric.config.is_dynamic and not fabric.is_circuit_switched:
        raise ConfigError(
            f"{', '.join(keys)}: no part of fabric {fabric.name!r} can fail while fabric.control is"
            f" {fabric.config.control!r}, before a run or during it: its reconfiguration of circuits does not support"
            f" failures; use fabric.control={ONE_SHOT}, where all parts may fail"
        )


def check_routing_over(fabric: Any, routing: str) -> None:
    """Raise ConfigError for a routing that may send over circuits which are not lit for what it sends there.

    Args: fabric: a Fabric; those that are nothing but circuits have routes for the pairs of a demand only.
    """
    if not fabric.config.is_dynamic or fabric.is_circuit_switched:
        return
    allowed = fabric.config.ROUTINGS_ANEW
    if base_of(routing) not in allowed:
        raise ConfigError(
            f"routing is {routing!r}, which may send over other pairs' circuits; while fabric.control is"
            f" {fabric.config.control!r} those of fabric {fabric.name!r} are set anew for each pair's own traffic,"
            f" and messages might wait forever; use one of: {', '.join(allowed)}, or fabric.control={ONE_SHOT}"
        )


def picoseconds(seconds: float) -> int:
    """Return a time as the core counts it."""
    return round(check_simulated(seconds, "fabric.period") * 1e12)
