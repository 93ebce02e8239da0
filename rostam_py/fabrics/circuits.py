"""Circuits: what an optical fabric's switches or wavelengths are set to for one demand (MODEL G21, G22)."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rostam_py.errors import ConfigError
from rostam_py.fabrics.switching import Switching
from rostam_py.fabrics.traffic import Traffic
from rostam_py.html import html_pairs
from rostam_py.units import format_bandwidth, format_size, format_time


def _no_pairs() -> np.ndarray:
    return np.empty(0, np.int64)


@dataclass(frozen=True, eq=False, kw_only=True)
class Circuits:
    """Circuits of one plane and the demand they were set for.

    src, dst: connected ordered pairs, int64 arrays (pairs,), sorted. count: circuits (or wavelengths) of each, int64.
    bandwidth_bytes_per_s: of each pair over all planes, float64. latency_s: of each pair's path, float64.
    circuit_pair: the pair of every single circuit, int64 array (circuits,), ascending. ocs: its switch; None on a ring.
    fibre (0 clockwise, towards higher numbers; 1 counter-clockwise) and wavelength of every circuit; None without
    a ring.
    min_ratio_per_s: least bandwidth / bytes over demanded pairs with a circuit [1/s], the objective (the largest
    possible, or a heuristic's, as the fabric's Config says): its inverse is how long the slowest pair sends [s]; 0
    without demand.
    relayed_src, relayed_dst, relayed_bytes: demanded pairs without a circuit, whose data takes a chain of circuits.
    colouring_gap: circuits given up so that both directions lie on one switch (duplex only).
    switching: how they are set anew during a run; None where they are not. What is above holds at its begin.
    notes: what a reader should know: remainder of the bandwidth, relays, gap, failed parts.
    """

    src: np.ndarray
    dst: np.ndarray
    count: np.ndarray
    bandwidth_bytes_per_s: np.ndarray
    latency_s: np.ndarray
    circuit_pair: np.ndarray
    ocs: np.ndarray | None = None
    fibre: np.ndarray | None = None
    wavelength: np.ndarray | None = None
    min_ratio_per_s: float = 0.0
    relayed_src: np.ndarray = field(default_factory=_no_pairs)
    relayed_dst: np.ndarray = field(default_factory=_no_pairs)
    relayed_bytes: np.ndarray = field(default_factory=lambda: np.empty(0))
    colouring_gap: int = 0
    switching: Switching | None = None
    notes: tuple[str, ...] = ()

    @property
    def num_circuits(self) -> int:
        """Circuits (or wavelengths) of one plane, all pairs together."""
        return len(self.circuit_pair)

    @property
    def links(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Source, destination, bandwidth over all planes and latency of the links that stand for pairs."""
        of = self if self.switching is None else self.switching
        return of.src, of.dst, of.bandwidth_bytes_per_s, of.latency_s

    @property
    def num_relayed_pairs(self) -> int:
        """Demanded pairs whose data takes a chain of circuits."""
        return len(self.relayed_src)

    def describe_relays(self) -> str | None:
        """Return how much is relayed over circuits that stay as they are; None for nothing."""
        num, size = self.num_relayed_pairs, format_size(float(self.relayed_bytes.sum()))
        return f"{num:,} pairs relayed, {size} an iteration" if num and self.switching is None else None

    def record(self) -> dict[str, Any]:
        """Return what result.json says of circuits that a run begins with."""
        return {
            "num_circuits": self.num_circuits, "num_pairs": len(self.src), "min_ratio_per_s": self.min_ratio_per_s,
            "num_pairs_without": self.num_relayed_pairs, "bytes_of_pairs_without": float(self.relayed_bytes.sum()),
            "notes": list(self.notes),
        }  # fmt: skip

    def degree(self, num_accelerators: int) -> tuple[np.ndarray, np.ndarray]:
        """Return circuits out of, and into, every accelerator: two int arrays (accelerators,)."""
        ends = [np.bincount(side, weights=self.count, minlength=num_accelerators) for side in (self.src, self.dst)]
        return ends[0].astype(np.int64), ends[1].astype(np.int64)

    def _repr_html_(self) -> str:
        """Return the text of a notebook: how many, how fast, relayed bytes."""
        rates = self.bandwidth_bytes_per_s
        pairs = {
            "circuits": f"{self.num_circuits:,} for {len(self.src):,} pairs",
            "bandwidth of a pair": f"{format_bandwidth(rates.min())} to {format_bandwidth(rates.max())}"
            if len(rates)
            else None,
            "slowest pair": f"sends an iteration's bytes in {format_time(1 / self.min_ratio_per_s)}"
            if self.min_ratio_per_s
            else None,
            "relays": self.describe_relays(),
            "notes": "; ".join(self.notes) or None,
        }
        return html_pairs("circuits of one plane", pairs)


def make_circuits(
    traffic: Traffic,
    *,
    src: np.ndarray,
    dst: np.ndarray,
    count: np.ndarray,
    circuit_bandwidth_bytes_per_s: float,
    latency_s: np.ndarray,
    notes: tuple[str, ...],
    **assignment: Any,
) -> Circuits:
    """Return Circuits with what follows from demand and counts: bandwidths, the least ratio, relayed pairs.

    Args: circuit_bandwidth_bytes_per_s: of one circuit or wavelength over all planes. assignment: circuit_pair, ocs,
        fibre, wavelength, colouring_gap, switching.
    """
    count = count.astype(np.int64)
    bandwidth = count * circuit_bandwidth_bytes_per_s
    num = traffic.num_accelerators
    demanded, connected = traffic.src * num + traffic.dst, src.astype(np.int64) * num + dst
    has_circuit = np.isin(demanded, connected)
    where = np.searchsorted(connected, demanded[has_circuit])
    ratios = bandwidth[where] / traffic.num_bytes[has_circuit]
    left = ~has_circuit
    relayed = traffic.num_bytes[left]
    if len(relayed) and assignment.get("switching") is not None:
        notes = (*notes, f"{len(relayed):,} of {len(demanded):,} pairs have no circuit to begin with")
    elif len(relayed):
        share = relayed.sum() / traffic.total_bytes
        notes = (
            *notes,
            f"{len(relayed):,} of {len(demanded):,} pairs have no circuit; relayed: {share:.1%} of the bytes",
        )
    return Circuits(
        src=src.astype(np.int64), dst=dst.astype(np.int64), count=count, bandwidth_bytes_per_s=bandwidth,
        latency_s=latency_s, min_ratio_per_s=float(ratios.min(initial=np.inf)) if len(ratios) else 0.0,
        relayed_src=traffic.src[left], relayed_dst=traffic.dst[left], relayed_bytes=relayed, notes=notes, **assignment,
    )  # fmt: skip


def with_circuits_for(fabric: Any, src: Any, dst: Any, num_bytes: Any, *, seed: int = 0) -> Any:
    """Return ``fabric`` ready to route these messages: with circuits set for them where it needs circuits.

    A fabric that switches packets, or whose circuits are set already, comes back as it is.
    Raises: ConfigError if the fabric cannot hold circuits for all pairs.
    """
    if not fabric.is_circuit_switched or fabric.circuits is not None:
        return fabric
    return fabric.with_circuits(Traffic.from_messages(fabric.num_accelerators, src, dst, num_bytes), seed=seed)


def check_demand(traffic: Traffic, num_accelerators: int, healthy: np.ndarray) -> None:
    """Raise ConfigError unless the demand is this fabric's and between accelerators that work."""
    if traffic.num_accelerators != num_accelerators:
        raise ConfigError(
            f"the traffic is of {traffic.num_accelerators} accelerators; the fabric has {num_accelerators}"
        )
    ends = np.union1d(traffic.src, traffic.dst)
    dead = ends[~np.isin(ends, healthy)]
    if dead.size:
        raise ConfigError(f"the traffic names accelerator {dead[0]}, which has failed")
