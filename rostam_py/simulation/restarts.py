"""Restart: a job that was cut, by a failure or a controller, and went on with an earlier iteration."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_PS = 1e-12


@dataclass(frozen=True, slots=True)
class Restart:
    """When a job was cut and resumed, and the bytes that were wasted.

    cut_s, start_s: when it was cut, and when it began again [s]. from_iteration: with which iteration, from 0.
    bytes_sent: for that iteration and later ones until it was cut, over all planes; bytes_received: what of it had
    arrived; bytes_lost: what had left its sources and reached no device. bytes_sent = bytes_received + bytes_lost.
    accelerators: of the job's devices from then on.
    """

    cut_s: float
    start_s: float
    from_iteration: int
    bytes_sent: int
    bytes_received: int
    bytes_lost: int
    accelerators: tuple[int, ...]


def restarts_of(job: dict[str, Any]) -> tuple[Restart, ...]:
    """Return the restarts of one job of the core's result."""
    raw: Iterable[dict[str, Any]] = job["restarts"]
    return tuple(
        Restart(
            one["cut_ps"] * _PS, one["start_ps"] * _PS, one["from_iteration"], one["sent_bytes"],
            one["received_bytes"], one["lost_bytes"], tuple(one["accelerators"]),
        )
        for one in raw
    )  # fmt: skip
