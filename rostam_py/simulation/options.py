"""SimulationOptions: how something is simulated, in one object for every function that simulates.

Example:
    exact = SimulationOptions(routing="hash", seed=7, fold=False)
    simulate(plan, options=exact); run_flows(fabric, src=..., dst=..., num_bytes=..., options=exact)   # refuses fold
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from rostam_py.checks import check_booleans
from rostam_py.errors import ConfigError

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulationOptions:
    """Options of a simulation; None leaves an option to the function, whose keywords of the same names go first.

    fidelity: the engine. routing: how paths are chosen. seed: of hashed paths and circuits. fold: simulate devices
    that must behave alike once. shortcuts: compute collectives on quiet links without messages; by default as fold.
    fuse: kernels between communication points are one task. min_iterations, max_iterations: bounds of a plan's.
    start_times: of each plan. events: changes to the network. recovery: response to failures among them.
    controllers: controllers of it. park: messages without a route wait until a controller gives them one. timeline:
    devices whose tasks are recorded. tolerance: share of a message's duration by which rates may follow its start and
    end later, 0 for exact. packets: PacketOptions of fidelity "packet".
    """

    fidelity: str | None = None
    routing: str | None = None
    seed: int | None = None
    fold: bool | None = None
    shortcuts: bool | None = None
    fuse: bool | None = None
    min_iterations: int | None = None
    max_iterations: int | None = None
    start_times: Sequence[str | float] | None = None
    events: Sequence[Any] | None = None
    recovery: Any = None
    controllers: Sequence[Any] | None = None
    park: bool | None = None
    timeline: bool | Sequence[int] | None = None
    tolerance: float | None = None
    packets: Any = None

    def __post_init__(self) -> None:
        check_booleans("options", self)

    def given(self) -> dict[str, Any]:
        """Return the options that are set, by name."""
        return {e.name: getattr(self, e.name) for e in fields(self) if getattr(self, e.name) is not None}

    def but(self, **changes: Any) -> "SimulationOptions":
        """Return these options with some changed."""
        return replace(self, **changes)


def takes_options(function: Callable[..., Result]) -> Callable[..., Result]:
    """Let a function take ``options=`` as well as keywords of the same names.

    Raises: ConfigError, when called, for options that the function has no keyword for.
    """
    signature = inspect.signature(function)
    known = [entry.name for entry in fields(SimulationOptions) if entry.name in signature.parameters]

    @functools.wraps(function)
    def wrapped(*args: Any, options: SimulationOptions | None = None, **keywords: Any) -> Result:
        return function(*args, **(chosen(options, known, function.__name__) | keywords))

    extra = inspect.Parameter(
        "options", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=SimulationOptions | None
    )
    parameters = [*signature.parameters.values(), extra]
    wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return wrapped


def chosen(options: SimulationOptions | None, known: Sequence[str], where: str) -> dict[str, Any]:
    """Return the options that are set, which must be among the ``known`` ones of a function.

    Raises: ConfigError for another object than SimulationOptions, and for options that have no meaning there.
    """
    if options is None:
        return {}
    if not isinstance(options, SimulationOptions):
        raise ConfigError(f"options is {options!r}; it must be a rostam.SimulationOptions")
    given = options.given()
    for name in given:
        if name not in known:
            raise ConfigError(f"options.{name} is set, but {where} takes only: {', '.join(known)}")
    return given
