"""sip_ring: accelerators on two counter-rotating fibres that share wavelengths."""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from rostam_py import _core
from rostam_py.errors import ConfigError
from rostam_py.fabrics.circuits import Circuits, make_circuits
from rostam_py.fabrics.config import check_integer
from rostam_py.fabrics.optical import MICRO_RING, SEGMENT, WAVELENGTH, OpticalConfig, estimators, picoseconds
from rostam_py.fabrics.ring_relays import (
    busiest_circuit,
    check_relays,
    neighbours_first,
    over_hops,
    pair_keys,
    shorter_hops,
    with_neighbours,
)
from rostam_py.fabrics.switching import Switching
from rostam_py.fabrics.symmetry import least_of_orbits
from rostam_py.fabrics.traffic import Traffic
from rostam_py.units import format_bandwidth, parse_bandwidth, parse_time

_MOST_MICRO_RINGS = 2**31 - 1  # the core numbers them in 32 bits
# Of those that are set anew: the core names them in 16 bits, and holds a number for each two of them.
_MOST_WAVELENGTHS = 2**16 - 1
# A bandwidth that is a whole number of wavelengths except for the rounding of its unit counts as whole.
_ROUNDING = 1e-9


@dataclass(kw_only=True, slots=True)
class SipRingConfig(OpticalConfig):
    """A switchless ring: W wavelengths on each of two counter-rotating fibres, used again on segments apart.

    Model: W = floor(B / wavelength_bandwidth); the remainder is lost and reported. The fabric is fibres; wavelengths
        are set for a plan's demand (``with_circuits``, MODEL G22), once or, with another ``control``, anew as traffic
        changes (OpticalConfig). Data takes the shorter way round, at most ``reach`` hops; where light survives both
        ways (at most twice ``reach`` accelerators) either, or both at once on different wavelengths, and then the
        longer one's latency. An accelerator sends, and receives, a wavelength on at most one fibre: <= B in all.
        With ``relay`` accelerators pass on data of pairs beyond reach, or that find no wavelength, over the fewest
        circuits: of these settings that whose busiest circuit, relays included, carries least, unless all pairs have
        wavelengths of their own: pairs beyond reach count for the longest hops of the way round that takes fewer; the
        same, and neighbours count as much as the largest demand; 2, half or all wavelengths are the neighbours' alone,
        the rest packed behind; hops of at most 1, 2, 4 ... segments. Two wavelengths so join all on a whole ring,
        whatever the reach, and one where it joins all on one fibre.
        A failed accelerator lets light pass; a cut fibre sends its pairs the other way round. Groups of accelerators
        that send alike get alike: what rounding would give to some of them only stays dark.
        A shift by 3, by 5 or by 7 among 16 accelerators with W = 256 gets all there is room for, 96, 64 and 48
        wavelengths a pair; random demands of 16 or fewer get 0.95 of the linear program's optimum or more with W = 320
        (in a run 0.9, 0.97 on average).
    Args:
        num_accelerators: >= 1, at their number on the ring.
        wavelength_bandwidth: bandwidth of one wavelength; 25 Gb/s in the paper.
        reach: hops that light survives; 16 in the paper (0.525 to 0.625 dB per hop of a 10 dB budget), which is its
            degree D too.
        relay: accelerators forward data of pairs without a circuit (own circuits' latency each, nothing in between), in
            equal parts where there are several ways; false refuses a demand of such pairs.
        latency: end-to-end latency of a circuit [1 us, assumed: that of electrical_flat, for comparisons].
        link_latency: added by each fibre segment on the way; 0, since ``latency`` covers the whole path.
        link_bandwidth: bandwidth of a fibre, which is B.
        reconfiguration_delay: 25 us, of micro-ring resonators. period: null takes 4 delays: the paper estimates traffic
            and sets wavelengths every 100 us, and does not say how: by what the last periods and the known iteration
            have to send, in equal parts. Others: OpticalConfig.
    Source: SiP-ML, sections 3.1, 3.3 and 4.1 (SiP-Ring).
    """

    PERIODS: ClassVar[int] = 4

    num_accelerators: int
    wavelength_bandwidth: Any = field(default="25 Gb/s", metadata={"unit": "bandwidth"})
    reach: int = 16
    relay: bool = False
    latency: Any = field(default="1 us", metadata={"unit": "time"})
    link_latency: Any = field(default="0 ns", metadata={"unit": "time"})
    reconfiguration_delay: Any = field(default="25 us", metadata={"unit": "time"})
    estimator: str = field(default="blend", metadata={"choices": estimators})

    def __post_init__(self) -> None:
        OpticalConfig.__post_init__(self)
        self.num_accelerators = check_integer("fabric.num_accelerators", self.num_accelerators, 1)
        self.reach = check_integer("fabric.reach", self.reach, 1)
        if self.wavelength_bandwidth is None or self.num_wavelengths < 1:
            raise ConfigError(
                f"fabric.wavelength_bandwidth is {self.wavelength_bandwidth!r}; it must be <= the fibre's "
                f"{format_bandwidth(self.link_bandwidth_bytes_per_s)}, so that there is one wavelength"
            )
        if self.is_dynamic and self.num_wavelengths > _MOST_WAVELENGTHS:
            raise ConfigError(
                f"fabric.wavelength_bandwidth is {self.wavelength_bandwidth!r}, so that a fibre of"
                f" {format_bandwidth(self.link_bandwidth_bytes_per_s)} has {self.num_wavelengths:,} wavelengths; it"
                f" must be so wide that there are at most {_MOST_WAVELENGTHS:,} where"
                f" fabric.control={self.control} sets them anew"
            )
        if 2 * self.num_accelerators * self.num_wavelengths > _MOST_MICRO_RINGS:
            raise ConfigError(
                f"fabric.wavelength_bandwidth is {self.wavelength_bandwidth!r}, so that a fibre of "
                f"{format_bandwidth(self.link_bandwidth_bytes_per_s)} has {self.num_wavelengths:,} wavelengths and"
                f" {self.num_accelerators:,} accelerators {2 * self.num_accelerators * self.num_wavelengths:,}"
                f" micro-rings; it must be so wide that there are at most {_MOST_MICRO_RINGS:,}"
            )

    @property
    def num_wavelengths(self) -> int:
        """W: wavelengths of a fibre of one plane."""
        wavelength = parse_bandwidth(self.wavelength_bandwidth, "fabric.wavelength_bandwidth")
        number = self.link_bandwidth_bytes_per_s / wavelength * (1 + _ROUNDING)
        return math.floor(min(number, 2.0**62))  # of a wavelength of next to nothing: what that needs is refused

    @property
    def is_circuit_switched(self) -> bool:
        """Whether routes need circuits."""
        return True

    def max_circuit_degree(self, failures: Any) -> int:
        """Return D, the circuits of an accelerator: as many as ``reach``, on a wavelength each (MODEL D14)."""
        return min(self.num_wavelengths, self.reach, self.num_accelerators - 1)

    @property
    def serves_beyond_degree(self) -> bool:
        """Whether an accelerator may have more peers than circuits: by relays, or by one circuit after another."""
        return self.relay or self.serves_all

    def can_connect(self, src: np.ndarray, dst: np.ndarray, failures: Any) -> np.ndarray:
        """Return, for each pair, whether one way round is at most ``reach`` hops long and uncut, as booleans."""
        n = self.num_accelerators
        src, dst = np.asarray(src, dtype=np.int64), np.asarray(dst, dtype=np.int64)
        found = src == dst
        for fibre, begin, hops in ((0, src, (dst - src) % n), (1, dst, (src - dst) % n)):
            # Cable 2s + fibre joins positions s and s + 1; ahead: cables before each position, twice round.
            cut = np.zeros(2 * n, dtype=np.int64)
            cut[[link // 2 + lap for link in failures.links if link % 2 == fibre for lap in (0, n)]] = 1
            ahead = np.concatenate([[0], np.cumsum(cut)])
            found |= (hops <= self.reach) & (ahead[begin + hops] == ahead[begin])
        return found

    def core_parameters(self) -> dict[str, Any]:
        """Return the core's plain arguments in SI units."""
        return {
            "num_accelerators": self.num_accelerators,
            "fibre_bandwidth_bytes_per_s": self.link_bandwidth_bytes_per_s,
            "link_latency_s": parse_time(self.link_latency, "fabric.link_latency"),
        }

    @property
    def optical_parts(self) -> dict[str, int]:
        """Wavelengths of both fibres, and micro-rings, each of one accelerator, fibre and wavelength."""
        wavelengths = 2 * self.num_wavelengths
        return {"wavelengths": wavelengths, "micro_rings": self.num_accelerators * wavelengths}

    def optical_part(self, kind: str, number: int, failures: Any) -> tuple[int, int] | None:
        """Return the core's kind and id of a segment, wavelength or micro-ring."""
        if kind != "links":
            return (WAVELENGTH if kind == "wavelengths" else MICRO_RING), number
        segment = number % (2 * self.num_accelerators)
        return None if segment in failures.links else (SEGMENT, segment)

    def describe_remainder(self) -> str | None:
        """Return what of the bandwidth no wavelength uses, or None."""
        wavelength = parse_bandwidth(self.wavelength_bandwidth)
        left = self.link_bandwidth_bytes_per_s - self.num_wavelengths * wavelength
        if left <= _ROUNDING * self.link_bandwidth_bytes_per_s:
            return None
        return f"{format_bandwidth(self.planes * left)} of every accelerator left over by whole wavelengths"

    def set_circuits(self, traffic: Traffic, failures: Any, seed: int) -> Circuits:
        """Return the wavelengths of a demand; ``seed`` draws how fractions are rounded.

        Raises: ConfigError for pairs out of reach and for demands that need more wavelengths than there are.
        """
        demand = traffic
        if self.relay:
            traffic, found = self._set_relays(demand, failures, seed)
        else:
            found = self.set_first(lambda may_leave_out: self._set(demand, failures, seed, may_leave_out))
        notes = [f"{self.num_wavelengths} wavelengths a fibre"]
        remainder = self.describe_remainder()
        if remainder is not None:
            notes.append(remainder)
        if failures.links:
            notes.append(f"{len(failures.links)} fibre segments are cut")
        pair, wavelength = found["circuit_pair"].astype(np.int64), found["circuit_wavelength"].astype(np.int64)
        count = least_of_orbits(traffic, found["count"].astype(np.int64))
        begin = np.concatenate([[0], np.cumsum(found["count"])[:-1]]).astype(np.int64)
        is_lit = np.arange(len(pair)) - begin[pair] < count[pair]
        num_dark = len(pair) - int(is_lit.sum())
        if num_dark:
            notes.append(f"{num_dark:,} wavelengths dark, so that groups that send alike are served alike")
        pair, wavelength = pair[is_lit], wavelength[is_lit]
        fibre = found["circuit_fibre"].astype(np.int64)[is_lit]
        latency_s = parse_time(self.latency) + found["num_hops"] * parse_time(self.link_latency)
        is_served = count > 0
        if self.relay and not (self.is_dynamic and self.num_wavelengths > 1):
            bandwidth = format_bandwidth(self.injection_bandwidth_bytes_per_s)
            check_relays(demand, traffic.src[is_served], traffic.dst[is_served], bandwidth)
        switching = None
        if self.is_dynamic:
            switching = self._switching(demand, traffic, latency_s, pair, fibre, wavelength, failures, seed)
        return make_circuits(
            demand, src=traffic.src[is_served], dst=traffic.dst[is_served], count=count[is_served],
            switching=switching,
            circuit_bandwidth_bytes_per_s=self.planes * parse_bandwidth(self.wavelength_bandwidth),
            latency_s=np.asarray(latency_s, dtype=np.float64)[is_served], notes=tuple(notes),
            circuit_pair=(np.cumsum(is_served) - 1)[pair], fibre=fibre, wavelength=wavelength,
        )  # fmt: skip

    def _set(
        self, traffic: Traffic, failures: Any, seed: int, may_leave_out: bool, num_reserved: int = 0
    ) -> dict[str, Any]:
        """Return the core's wavelengths, of those that are not reserved."""
        return _core.set_ring_wavelengths(
            traffic.num_accelerators, traffic.src, traffic.dst, traffic.num_bytes,
            num_wavelengths=self.num_wavelengths - num_reserved, reach=self.reach, cut_segments=list(failures.links),
            seed=seed, may_leave_out=may_leave_out,
        )  # fmt: skip

    def _set_relays(self, demand: Traffic, failures: Any, seed: int) -> tuple[Traffic, dict[str, Any]]:
        """Return the demand over hops and its wavelengths: of several unless all pairs have their own."""
        hops, found = over_hops(demand, self.reach, failures), []
        with contextlib.suppress(ConfigError):
            found.append((hops, self._set(hops, failures, seed, False)))
        if found and np.array_equal(pair_keys(hops), pair_keys(demand)):
            return found[0]
        found += self._settings_of_some(demand, hops, failures, seed)
        busiest = [
            busiest_circuit(demand, of.src, of.dst, least_of_orbits(of, one["count"].astype(np.int64)))
            for of, one in found
        ]
        return found[busiest.index(min(busiest))]

    def _settings_of_some(
        self, demand: Traffic, hops: Traffic, failures: Any, seed: int
    ) -> Iterator[tuple[Traffic, dict[str, Any]]]:
        """Yield settings with which pairs relay: a demand over hops, and its wavelengths."""
        w = self.num_wavelengths
        for over in (hops, *shorter_hops(demand, self.reach, failures)):
            if over is not hops:
                with contextlib.suppress(ConfigError):
                    yield over, self._set(over, failures, seed, False)
            joined = with_neighbours(over, self.reach, failures)
            yield joined, self._set(joined, failures, seed, True)
            for num_reserved in sorted({min(2, w), max(min(2, w), w // 4 * 2), w}):
                rest = self._set(over, failures, seed, True, num_reserved) if num_reserved < w else None
                yield joined, neighbours_first(joined, over, num_reserved, rest, self.reach, failures)

    def _switching(
        self, demand: Traffic, traffic: Traffic, latency_s: np.ndarray, pair: np.ndarray, fibre: np.ndarray,
        wavelength: np.ndarray, failures: Any, seed: int,
    ) -> Switching:  # fmt: skip
        """Return how wavelengths are set anew between the pairs of a demand, beginning with these circuits.

        Args: traffic: the demand over hops, if pairs relay, whose pairs ``pair`` and ``latency_s`` are of.
        """
        one, size = parse_bandwidth(self.wavelength_bandwidth), traffic.num_accelerators
        w = self.num_wavelengths
        demanded, hops = pair_keys(demand), pair_keys(traffic)
        keys = np.union1d(demanded, hops)
        if self.relay:
            keys = np.union1d(keys, pair_keys(with_neighbours(traffic, self.reach, failures)))
        num, src, dst = len(keys), keys // size, keys % size
        num_bytes = np.zeros(num)
        num_bytes[np.searchsorted(keys, demanded)] = demand.num_bytes
        # Nothing is lit for pairs beyond reach: their way is a chain's.
        num_hops = np.minimum((dst - src) % size, (src - dst) % size)
        latency = parse_time(self.latency) + num_hops * parse_time(self.link_latency)
        latency[np.searchsorted(keys, hops)] = latency_s
        relays: dict[str, Any] = {}
        if self.relay:
            relays = {"relay": [1], "pair_latency_ps": [picoseconds(float(one)) for one in latency]}
        pair = np.searchsorted(keys, hops)[pair]
        return Switching(
            controller="ring_wavelengths", src=src, dst=dst,
            bandwidth_bytes_per_s=np.full(num, self.planes * one * w), latency_s=latency,
            parameters={
                **self.switching_parameters(size, src, dst, num_bytes, one, 0.0), **relays,
                "initial_pair": pair.tolist(), "initial_channel": (fibre * w + wavelength).tolist(),
                "num_wavelengths": [w], "reach": [self.reach], "seed": [seed % 2**63],
                **({"cut_segments": list(failures.links)} if failures.links else {}),
            },
        )  # fmt: skip
