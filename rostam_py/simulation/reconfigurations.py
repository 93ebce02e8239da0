"""Reconfigurations: what the controller of a fabric's circuits did during a run, and how it is told what it serves."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rostam_py.errors import ConfigError
from rostam_py.fabrics.optical import ONE_SHOT
from rostam_py.fabrics.routings import base_of
from rostam_py.plan.failures import Failure, Recovery
from rostam_py.simulation.controllers import Controllers
from rostam_py.simulation.failures import is_optical, optical_parameters
from rostam_py.units import format_number_of, format_size, format_time

_PS = 1e-12
_DETOURS = ("adaptive", "layers", "ugal", "valiant")  # routings that know more than a pair's minimal paths
_PARTS = ("optical port", "optical switch", "fibre segment", "wavelength", "micro-ring")  # by the core's kind


@dataclass(frozen=True, eq=False, kw_only=True)
class Reconfigurations:
    """How circuits were set anew in a run.

    control: when they are. num_decisions: how often that was thought over; num_reused: of these an answer was known,
    demands being alike to 2%. num_phases: of the known iteration, all jobs; 0 unless scheduled. begin_s, end_s: of each
    reconfiguration, from the first circuit that is dark to when it is lit, float arrays (reconfigurations,);
    num_changed: its circuits that were dark, int64. lit_circuit_s, dark_circuit_s: all circuits' time [s].
    failed_circuit_s: of the latter for failed parts. failed: words, from when and until when [ps, -1: the end] of
    each failed part that circuits go through; reroute_ps: from then until circuits around it begin to be set.
    relayed_bytes: that accelerators passed on for pairs without a circuit, each counted as often, over all planes.
    """

    control: str
    num_decisions: int
    num_reused: int
    num_phases: int
    begin_s: np.ndarray
    end_s: np.ndarray
    num_changed: np.ndarray
    lit_circuit_s: float
    dark_circuit_s: float
    relayed_bytes: float
    failed_circuit_s: float = 0.0
    failed: tuple[tuple[str, int, int], ...] = ()
    reroute_ps: int = 0

    @property
    def duty_cycle(self) -> float:
        """Share of the circuits' time in which they carry."""
        total = self.lit_circuit_s + self.dark_circuit_s
        return self.lit_circuit_s / total if total else 1.0

    @property
    def dark_s(self) -> float:
        """Time in which some circuit is dark [s]."""
        latest = np.maximum.accumulate(np.concatenate([[0.0], self.end_s]))  # begins ascend, spans may overlap
        return float(np.maximum(latest[1:] - np.maximum(self.begin_s, latest[:-1]), 0).sum())

    def spans_ps(self) -> list[tuple[int, int, int]]:
        """Return begin and end [ps] and the circuits that changed, of each reconfiguration."""
        ends = (np.rint(side / _PS).astype(np.int64).tolist() for side in (self.begin_s, self.end_s))
        return list(zip(*ends, self.num_changed.tolist(), strict=True))

    def figures(self) -> dict[str, Any]:
        """Return what runs are compared by, of the whole run."""
        return {
            "num_reconfigurations": len(self.begin_s), "num_changed_circuits": int(self.num_changed.sum()),
            "duty_cycle": self.duty_cycle, "dark_s": self.dark_s,
        }  # fmt: skip

    def record(self) -> dict[str, Any]:
        """Return plain data for a file, sums instead of every reconfiguration."""
        arrays = ("begin_s", "end_s", "num_changed", "failed", "reroute_ps")
        sums = {key: value for key, value in asdict(self).items() if key not in arrays}
        return {
            **sums, **self.figures(), "num_failed_parts": len(self.failed),
        }  # fmt: skip

    def describe(self) -> str:
        """Return it in words."""
        words = (
            f"{self.control}: {len(self.begin_s):,} reconfigurations of {int(self.num_changed.sum()):,} circuits,"
            f" duty cycle {self.duty_cycle:.1%}, some dark for {format_time(self.dark_s)}"
        )
        if self.failed:
            count = format_number_of(len(self.failed), "part")
            words += f"; {count} failed, circuits x time lost {format_time(self.failed_circuit_s)}"
        return words + (f"; {format_size(self.relayed_bytes)} relayed" if self.relayed_bytes else "")


def circuit_controllers(
    router: Any, fabric: Any, known: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None = None,
    events: Iterable[Any] = (), recovery: Recovery | None = None, routing: str = "spray",
) -> Controllers:  # fmt: skip
    """Return the controllers of a fabric's circuits, if they are set anew in a run, as the core takes them.

    Args: fabric: that the router is over, circuits set. known: messages that are given: time [ps], source, destination,
        bytes. events, recovery: of the run; parts that circuits go through may fail. routing: of the router.
    Raises: ConfigError for a routing of detours where relays are set anew.
    """
    switchings = fabric.config.switchings()
    if fabric.is_circuit_switched and fabric.circuits.switching is not None:
        switchings = [fabric.circuits.switching]
    if not switchings:
        return []
    if base_of(routing) in _DETOURS and any(one.parameters.get("relay") == [1] for one in switchings):
        raise ConfigError(
            f"routing is {routing!r}, which divides messages or takes detours by itself; where circuits are set anew in"
            " a run (fabric.control, or around parts that fail) fabric.relay sends messages over circuits of its own"
            " choice: take routing=spray"
        )
    engine_link = np.empty(fabric.num_directed_links, np.int64)
    for index, links in enumerate(router.members):
        engine_link[list(links)] = index
    own = []
    for switching in switchings:
        named = switching.links or {"link": np.arange(len(switching.src))}
        parameters = {**switching.parameters, **{key: engine_link[links].tolist() for key, links in named.items()}}
        parameters |= optical_parameters(_optical(events, fabric), recovery, fabric)
        if known is not None:
            parameters |= _known(switching, *known)
        own.append((switching.controller, parameters))
    return own


def _optical(events: Iterable[Any], fabric: Any) -> list[Failure]:
    return [one for one in events if isinstance(one, Failure) and is_optical(one, fabric)]


def _known(
    switching: Any, time_ps: np.ndarray, src: np.ndarray, dst: np.ndarray, num_bytes: np.ndarray
) -> dict[str, Any]:
    ends = switching.ends_of(src.astype(np.int64), dst.astype(np.int64))
    num = 1 + max(int(side.max(initial=0)) for side in (*ends, switching.src, switching.dst))
    keys = switching.src * num + switching.dst
    wanted = ends[0] * num + ends[1]
    pair = np.searchsorted(keys, wanted)
    is_sent = (num_bytes > 0) & (ends[0] != ends[1]) & np.isin(wanted, keys)
    order = np.argsort(time_ps[is_sent], kind="stable")
    columns = {"known_ps": time_ps, "known_pair": pair, "known_bytes": num_bytes.astype(np.float64)}
    return {key: column[is_sent][order].tolist() for key, column in columns.items()}


def reconfigurations_of(
    fabric: Any, own: Sequence[Any], reports: Sequence[Mapping[str, Any]], forwarded_bytes: float, end_ps: int
) -> Reconfigurations | None:
    """Return what the fabric's own controllers, the last ones of a run, did, all together; None without any.

    Args: own: as ``circuit_controllers`` returned it. forwarded_bytes: of one plane. end_ps: of the run: parts that
        fail later are none of its.
    """
    if not own:
        return None
    said, told, config = reports[-len(own) :], own[-1][1], fabric.config
    begin = np.concatenate([one["begin_ps"] for one in said])
    order = np.argsort(begin, kind="stable")

    def spans(key: str) -> np.ndarray:
        return np.concatenate([one[key] for one in said])[order]

    def total(key: str) -> Any:
        return sum(one[key][0] for one in said)

    failed = (told.get(f"part_{key}", []) for key in ("kind", "id", "fail_ps", "repair_ps"))
    return Reconfigurations(
        control=ONE_SHOT if config.is_set_once else config.control, num_decisions=int(total("num_decisions")),
        num_reused=int(total("num_reused")), num_phases=int(total("num_phases")), begin_s=spans("begin_ps") * _PS,
        end_s=spans("end_ps") * _PS, num_changed=spans("changed"), lit_circuit_s=float(total("lit_circuit_s")),
        dark_circuit_s=float(total("dark_circuit_s")), relayed_bytes=forwarded_bytes * fabric.planes,
        failed_circuit_s=float(total("failed_circuit_s")), reroute_ps=told.get("reroute_ps", [0])[0],
        failed=tuple(
            (f"{_PARTS[kind]} {part}", *span) for kind, part, *span in zip(*failed, strict=True) if span[0] <= end_ps
        ),
    )  # fmt: skip
