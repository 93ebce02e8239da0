"""What a sweep is expected to take."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SweepEstimate:
    """What a sweep would do. left: points to evaluate, alike ones once. seconds: wall time of that, without start,
    tracing, details and report; None if not estimated. basis: what the estimate rests on.
    """

    num_points: int
    num_stored: int
    left: int
    seconds: float | None
    basis: str
