"""Fidelities: the engines that the core has, and the tier without one.

Example:
    check_fidelity("fluid")  # raises ConfigError, listing what there is
"""

from rostam_py import _core
from rostam_py.errors import ConfigError

# Closed forms instead of a simulation; only single collectives have them.
ANALYTIC = "analytic"


def engines() -> dict[str, str]:
    """Return what each registered engine is, in one line, by name."""
    return {name: _core.engine_traits(name).summary for name in _core.engine_names()}


def fidelities() -> dict[str, str]:
    """Return what each value of ``fidelity`` is, in one line: the engines and the analytic tier."""
    return engines() | {ANALYTIC: "closed forms of single collectives, without a simulation"}


def check_tolerance(tolerance: float) -> float:
    """Return the share of a message's duration by which what it changes may be late.

    Raises: ConfigError unless it is a number in [0, 1).
    """
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 <= tolerance < 1:
        raise ConfigError(
            f"tolerance is {tolerance!r}; it must be a number in [0, 1), a share of a message's duration, 0 for exact"
        )
    return float(tolerance)


def tolerance_notes(tolerance: float) -> tuple[str, ...]:
    """Return what a result says of its tolerance: nothing where it is exact."""
    if tolerance == 0:
        return ()
    return (f"Not exact: rates follow starts and ends of messages up to {tolerance:.3g} of their duration later.",)


def walks_packets(fidelity: str) -> bool:
    """Return whether messages of an engine go as packets."""
    return bool(_core.engine_traits(fidelity).walks_packets)


def check_fidelity(fidelity: str, *, has_closed_forms: bool = False) -> None:
    """Raise ConfigError unless ``fidelity`` is an engine, or the analytic tier where there are closed forms."""
    allowed = fidelities() if has_closed_forms else engines()
    if fidelity not in allowed:
        raise ConfigError(f"fidelity is {fidelity!r}; it must be one of: {', '.join(allowed)}")
