"""Channel dependencies: whether packets of a routing can block each other for good on a fabric, and where.

Example:
    check_dependencies(fabric, "turns").is_deadlock_free
    print(check_dependencies(ring, "spray", virtual_channels="one"))     # the links that wait for each other
"""

import difflib
from dataclasses import dataclass
from typing import Any

from rostam_py import _core
from rostam_py.errors import ConfigError
from rostam_py.fabrics.fabric import Fabric, check_fabric
from rostam_py.fabrics.routings import check_routing
from rostam_py.html import html_pairs

_SHOWN = 12  # links of a cycle in prose


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What virtual channels of links wait for each other under a routing.

    num_channels: virtual channels of links that some path takes. num_dependencies: pairs of them, one held while the
    other is waited for. num_virtual_channels: the most that one link needs. num_pairs: ordered pairs of accelerators
    with a path. num_unrouted: those without one, which get NoRouteError. cycle: ("accelerator 0", "switch 3", virtual
    channel) of links each of which waits for the next, the last for the first; () if packets cannot block for good.
    notes: what to know of the routing on this fabric.
    """

    num_channels: int
    num_dependencies: int
    num_virtual_channels: int
    num_pairs: int
    num_unrouted: int
    cycle: tuple[tuple[str, str, int], ...]
    notes: tuple[str, ...] = ()

    @property
    def is_deadlock_free(self) -> bool:
        """Whether the dependencies form no cycle, which proves that packets never block each other for good."""
        return not self.cycle

    def __str__(self) -> str:
        """Return the verdict in a few lines, with the cycle if there is one."""
        pairs = f"{self.num_pairs:,} pairs" + (f", {self.num_unrouted:,} without a path" if self.num_unrouted else "")
        what = f"{pairs}; {self.num_channels:,} channels, {self.num_dependencies:,} dependencies, "
        what += f"{self.num_virtual_channels} virtual channel{'' if self.num_virtual_channels == 1 else 's'} of a link"
        notes = [f"note: {note}" for note in self.notes]
        if not self.num_pairs:
            return "\n".join([f"nothing to prove, no two accelerators have a path: {what}", *notes])
        if self.is_deadlock_free:
            return "\n".join([f"free of deadlock: {what}", *notes])
        lines = [f"  {src} -> {dst}, virtual channel {channel}" for src, dst, channel in self.cycle[:_SHOWN]]
        rest = len(self.cycle) - _SHOWN
        more = [f"  and {rest} more, back to the first"] if rest > 0 else ["  and back to the first"]
        return "\n".join([f"may deadlock: {what}; these links wait for each other:", *lines, *more, *notes])

    def to_dict(self) -> dict[str, Any]:
        """Return the counts and the cycle."""
        return {
            "is_deadlock_free": self.is_deadlock_free,
            "num_channels": self.num_channels,
            "num_dependencies": self.num_dependencies,
            "num_virtual_channels": self.num_virtual_channels,
            "num_pairs": self.num_pairs,
            "num_unrouted": self.num_unrouted,
            "cycle": [list(link) for link in self.cycle],
            "notes": list(self.notes),
        }

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        pairs = {
            key.replace("_", " "): f"{value}" for key, value in self.to_dict().items() if key not in ("cycle", "notes")
        }
        return html_pairs("channel dependencies", {**pairs, "links in a cycle": f"{len(self.cycle)}"})


def channel_schemes() -> list[str]:
    """Return the names of the ways to number virtual channels."""
    return list(_core.channel_schemes())


def check_dependencies(fabric: Fabric, routing: str = "turns", *, virtual_channels: str = "routing") -> Dependencies:
    """Prove a routing free of deadlock on a fabric, with its failures, or show links that wait for each other.

    Model: a packet holds a virtual channel of a link until it has one of the next link. The graph of these dependencies
        over every path that the routing may take, between all pairs of working accelerators that have one, must hold
        no cycle. Hops that turns_adaptive states as optional are waited for by nobody: a packet there waits for the
        required ones, escape channels, at the same time and takes what has room first. So it waits, among others, for
        channels that come later in one order; as a buffer holds whole packets, nothing blocks for good. Other adaptive
        routings may be safe with a cycle, which is not looked for. Planes that differ are checked each and summed.
    Args:
        fabric: with its failures.
        routing: a registered one (rostam list routings); "turns" is the fabric's own turn model.
        virtual_channels: which one a packet takes: "routing" as the routing says (the first where it says nothing),
            "one" the first always, "hops" the k-th on its k-th link.
    Raises: ConfigError for a non-fabric, another routing or another way to number virtual channels.
    Cost: pairs x paths.
    Source: Dally and Seitz, IEEE Transactions on Computers 1987, theorem 1; Duato, IEEE TPDS 7(8), 1996, for escape
        channels under cut-through.
    """
    check_fabric(fabric)
    check_routing(routing)
    schemes = channel_schemes()
    if virtual_channels not in schemes:
        near = difflib.get_close_matches(str(virtual_channels), schemes, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ConfigError(f"virtual_channels is {virtual_channels!r}{hint}; allowed: {', '.join(schemes)}")
    routes = fabric.router(routing, enable_bundling=False)
    found = _core.channel_dependencies(routes, fabric.healthy_accelerators, virtual_channels)
    links = fabric.links
    first_planes = [planes[0] for planes in fabric.plane_classes]
    cycle: list[tuple[str, str, int]] = []
    for one, plane in zip(found, first_planes, strict=True):
        if one["cycle"] and not cycle:
            own = links[links["plane"] == plane]
            cycle = [
                (fabric.vertex_name(int(own["src"][link])), fabric.vertex_name(int(own["dst"][link])), int(channel))
                for link, channel in one["cycle"]
            ]
    return Dependencies(
        num_channels=sum(one["num_channels"] for one in found),
        num_dependencies=sum(one["num_dependencies"] for one in found),
        num_virtual_channels=max(one["num_virtual_channels"] for one in found),
        num_pairs=min(one["num_pairs"] for one in found),
        num_unrouted=max(one["num_unrouted"] for one in found),
        cycle=tuple(cycle),
        notes=tuple(routes.notes),
    )
