"""sip_ocs: accelerators joined by Q optical circuit switches."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rostam_py import _core
from rostam_py.errors import ConfigError
from rostam_py.fabrics.circuits import Circuits, make_circuits
from rostam_py.fabrics.config import check_integer
from rostam_py.fabrics.optical import PORT, SWITCH, OpticalConfig
from rostam_py.fabrics.switching import Switching
from rostam_py.fabrics.traffic import Traffic
from rostam_py.units import parse_time

if TYPE_CHECKING:
    from rostam_py.fabrics.layout import Layout


@dataclass(kw_only=True, slots=True)
class SipOcsConfig(OpticalConfig):
    """Optical circuit switches: each accelerator has one link of B/Q to each of Q switches.

    Model: the fabric is ports and switches; circuits are set for a plan's demand (``with_circuits``, MODEL G21), once
        or, with another ``control``, anew as traffic changes (OpticalConfig). A circuit is directed and has B/Q; on a
        switch an accelerator sends on, and receives on, one circuit.
        A failed switch takes one circuit from every accelerator; a failed link takes its whole switch out of use.
    Args:
        num_accelerators: >= 1.
        num_ocs: Q, switches, and so the circuits that an accelerator can hold; 16 in the paper.
        symmetric: equal numbers of circuits in both directions.
        duplex: both directions of a circuit on one switch (implies symmetric); circuits lost to that are reported.
        relay: accelerators forward data of pairs without a circuit, over the fewest circuits (own circuits' latency
            each, nothing in between), in equal parts where circuits may change or fail; false refuses a demand of more
            peers than circuits that are set once.
        latency: end-to-end latency of a circuit [1 us, assumed: that of electrical_flat, for comparisons].
        link_latency: added by each of the two links of a circuit; 0, since ``latency`` covers the whole path.
        reconfiguration_delay: 10 ms, of commercial switches. period: null takes 5 delays: the paper's controller uses
            the traffic of the last 5 d and keeps circuits for 5 d. Others: OpticalConfig.
    Source: SiP-ML, sections 3.1, 3.3 and 4.1 (SiP-OCS).
    """

    PERIODS: ClassVar[int] = 5

    num_accelerators: int
    num_ocs: int = 16
    symmetric: bool = False
    duplex: bool = False
    relay: bool = False
    latency: Any = field(default="1 us", metadata={"unit": "time"})
    link_latency: Any = field(default="0 ns", metadata={"unit": "time"})

    def __post_init__(self) -> None:
        OpticalConfig.__post_init__(self)
        self.num_accelerators = check_integer("fabric.num_accelerators", self.num_accelerators, 1)
        self.num_ocs = check_integer("fabric.num_ocs", self.num_ocs, 1)
        check_integer("fabric.num_accelerators x fabric.num_ocs", self.num_accelerators * self.num_ocs, 1)

    def draw(self, fabric: Any, level: int) -> "Layout":
        """Draw accelerators on a circle, and circuits, or without any the optical switches inside."""
        from rostam_py.fabrics.layout_circle import draw_circle

        return draw_circle(fabric, level, "optical switch")

    @property
    def ports_per_plane(self) -> int:
        """Links that an accelerator has in one plane: one to each switch."""
        return self.num_ocs

    @property
    def is_circuit_switched(self) -> bool:
        """Whether routes need circuits."""
        return True

    @property
    def serves_beyond_degree(self) -> bool:
        """Whether an accelerator may have more peers than circuits: by relays, or by one circuit after another."""
        return self.relay or self.serves_all

    def max_circuit_degree(self, failures: Any) -> int:
        """Return the circuits that an accelerator can hold: one on each working switch."""
        return self.num_ocs - len(self._lost_switches(failures))

    def core_parameters(self) -> dict[str, Any]:
        """Return the core's plain arguments in SI units."""
        return {
            "num_accelerators": self.num_accelerators,
            "num_ocs": self.num_ocs,
            "link_bandwidth_bytes_per_s": self.link_bandwidth_bytes_per_s,
            "latency_s": parse_time(self.latency, "fabric.latency"),
            "link_latency_s": parse_time(self.link_latency, "fabric.link_latency"),
        }

    def optical_part(self, kind: str, number: int, failures: Any) -> tuple[int, int] | None:
        """Return the core's kind and id of a port or switch, counted among switches that work."""
        working = np.setdiff1d(np.arange(self.num_ocs), sorted(self._lost_switches(failures)))
        accelerator, switch = divmod(number % (self.num_accelerators * self.num_ocs), self.num_ocs)
        if switch not in working:
            return None
        index = int(np.searchsorted(working, switch))
        return (PORT, accelerator * len(working) + index) if kind == "links" else (SWITCH, index)

    def set_circuits(self, traffic: Traffic, failures: Any, seed: int) -> Circuits:
        """Return the circuits of a demand; ``seed`` is not needed, since the optimum is found.

        Raises: ConfigError for a demand that the switches cannot hold.
        """
        lost = self._lost_switches(failures)
        working = np.setdiff1d(np.arange(self.num_ocs), sorted(lost))
        if not len(working):
            raise ConfigError(f"all {self.num_ocs} optical switches have failed; no circuit can be set")
        found = self.set_first(
            lambda may_leave_out: _core.set_ocs_circuits(
                traffic.num_accelerators, traffic.src, traffic.dst, traffic.num_bytes, len(working),
                is_symmetric=self.symmetric, is_duplex=self.duplex, can_relay=self.relay, may_leave_out=may_leave_out,
            )
        )  # fmt: skip
        latency_s = parse_time(self.latency) + 2 * parse_time(self.link_latency)
        switching = self._switching(traffic, found, len(working), latency_s) if self.is_dynamic else None
        return make_circuits(
            traffic, switching=switching, src=found["src"], dst=found["dst"], count=found["count"],
            circuit_bandwidth_bytes_per_s=self.planes * self.link_bandwidth_bytes_per_s,
            latency_s=np.full(len(found["src"]), latency_s), notes=self._notes(lost, found["colouring_gap"]),
            circuit_pair=found["circuit_pair"].astype(np.int64), ocs=working[found["circuit_ocs"]],
            colouring_gap=int(found["colouring_gap"]),
        )  # fmt: skip

    def _switching(self, traffic: Traffic, found: dict[str, Any], num_ocs: int, latency_s: float) -> Switching:
        """Return how circuits are set anew between the pairs of a demand, beginning with those found."""
        mirrors = self.symmetric or self.duplex
        if mirrors:
            traffic = traffic.both_ways()
        port, size = self.link_bandwidth_bytes_per_s, traffic.num_accelerators
        demanded = traffic.src * size + traffic.dst
        keys, found_src = demanded, found["src"].astype(np.int64)
        if self.relay:
            keys = np.union1d(np.union1d(keys, _ring_pairs(traffic, mirrors)), found_src * size + found["dst"])
        num_bytes = np.zeros(len(keys))
        num_bytes[np.searchsorted(keys, demanded)] = traffic.num_bytes
        src, dst, num = keys // size, keys % size, len(keys)
        where = np.searchsorted(keys, found_src * size + found["dst"])
        return Switching(
            controller="ocs_circuits", src=src, dst=dst,
            bandwidth_bytes_per_s=np.full(num, self.planes * port * num_ocs), latency_s=np.full(num, latency_s),
            parameters={
                **self.switching_parameters(size, src, dst, num_bytes, port, latency_s),
                "initial_pair": where[found["circuit_pair"]].tolist(), "initial_channel": found["circuit_ocs"].tolist(),
                "num_ocs": [num_ocs], "symmetric": [int(self.symmetric)], "duplex": [int(self.duplex)],
                "relay": [int(self.relay)],
            },
        )  # fmt: skip

    def _lost_switches(self, failures: Any) -> set[int]:
        """Return the switches that hold no circuits: failed ones and those with a failed link."""
        return set(failures.switches) | {link % self.num_ocs for link in failures.links}

    def _notes(self, lost: set[int], colouring_gap: int) -> tuple[str, ...]:
        notes = []
        if lost:
            notes.append(f"{len(lost)} of {self.num_ocs} optical switches are out of use")
        if colouring_gap:
            notes.append(f"{colouring_gap} circuits given up to keep both directions on one switch")
        return tuple(notes)


def _ring_pairs(traffic: Traffic, mirrors: bool) -> np.ndarray:
    """Return the pairs src x accelerators + dst of a ring round all that send or receive, as relays may need them."""
    ends = np.union1d(traffic.src, traffic.dst)
    ring = ends * traffic.num_accelerators + np.roll(ends, -1)
    return np.union1d(ring, np.roll(ends, -1) * traffic.num_accelerators + ends) if mirrors else np.unique(ring)
