"""Closed-form times of collectives on an idle fabric of uniform latency (MODEL A5)."""

from rostam_py import _core
from rostam_py.fabrics.config import check_integer
from rostam_py.units import parse_bandwidth, parse_size, parse_time


def collective_time_ps(
    collective: str,
    algorithm: str,
    *,
    num_bytes: int | str,
    num_ranks: int,
    latency: float | str,
    bandwidth: float | str,
    grid: tuple[int, ...] = (),
    num_pieces: int = 1,
) -> int:
    """Return the closed-form time of one collective in whole picoseconds.

    Model: the formulas of MODEL A5, every message rounded up to 1 ps as the engines do; chunks are ceil(S/p).
        No congestion and one latency for all messages.
    Args: collective, algorithm: for example "all_reduce", "ring"; see ``closed_form_names``. num_bytes: S of
        MODEL A4. num_ranks: p >= 1. latency: of one message [s]. bandwidth: of the one interface that the
        algorithm uses, B / interfaces used [bytes/s]. grid: the sides that ranks stand on, for those on a torus.
        num_pieces: of the buffer, of a broadcast or reduce by ring.
    Returns: time [ps].
    Raises: ConfigError for a pair of names without a closed form (lists them), or values out of range.
    Source: MODEL A5; csrc/analytic/closed_forms.h lists the formulas.
    """
    return int(
        _core.collective_time_ps(
            collective,
            algorithm,
            parse_size(num_bytes, "num_bytes"),
            check_integer("num_ranks", num_ranks, 1),
            parse_time(latency, "latency"),
            parse_bandwidth(bandwidth, "bandwidth"),
            grid,
            check_integer("num_pieces", num_pieces, 1),
        )
    )


def closed_form_names() -> list[str]:
    """Return "collective/algorithm" of every closed form."""
    return list(_core.closed_form_names())
