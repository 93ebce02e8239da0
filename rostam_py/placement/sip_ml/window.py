"""Windows: which devices of a model-parallel group may exchange data, and the way between those that may not.

window = make_window(16, degree=8, has_ring=True)      # 3 to either side of 16, and a circuit for the ring
window.path(0, 8)                                      # [2, 5, 8]: what 0 has for 8 is passed on by 2 and 5
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from rostam_py.errors import ConfigError
from rostam_py.plan.placing import WINDOWS


@dataclass(frozen=True)
class Window:
    """Devices in range of one another in a group of ``num_devices``.

    outward: per device, those it may send to, itself among them, as bits. clique: how many consecutive devices may
    all exchange data with one another, wherever they begin.
    """

    num_devices: int
    outward: tuple[int, ...]
    clique: int = field(init=False, compare=False)
    inward: tuple[int, ...] = field(init=False, compare=False, repr=False)
    _parents: dict[int, list[int]] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        k = self.num_devices
        inward = [0] * k
        for source, mask in enumerate(self.outward):
            for target in bits(mask):
                inward[target] |= 1 << source
        object.__setattr__(self, "inward", tuple(inward))
        clique = 1
        while clique < k and all(self.outward[i] & inward[i] & 1 << (i + clique) % k for i in range(k)):
            clique += 1
        object.__setattr__(self, "clique", clique)

    def holds(self, source: int, target: int) -> bool:
        """Tell whether one device may send to another."""
        return bool(self.outward[source] >> target & 1)

    def fits(self, num_parts: int, num_source_parts: int) -> bool:
        """Tell whether sub-ops that each read all parts of a source can all be in range of one another."""
        return max(num_parts, num_source_parts) <= self.clique

    def path(self, source: int, target: int) -> list[int]:
        """Return the devices that data passes on its way, the target last: as few as possible, in even hops."""
        if source not in self._parents:
            self._parents[source] = self._tree(source)
        parents, way = self._parents[source], [target]
        while parents[way[-1]] != source:
            way.append(parents[way[-1]])
        return way[::-1]

    def _tree(self, source: int) -> list[int]:
        """Return from which device each gets what ``source`` has, hop by hop."""
        k = self.num_devices
        parents = [source] * k
        done, reached, hops = 1 << source, 1 << source, 0
        while reached:
            hops += 1
            found = 0
            for device in bits(reached):
                found |= self.outward[device]
            found &= ~done
            for target in bits(found) if hops > 1 else ():
                whole = self._gap(source, target)

                def order(device: int, target: int = target, whole: int = whole, hops: int = hops) -> tuple[int, int]:
                    return abs(self._gap(device, target) * hops - whole), device

                parents[target] = min(bits(reached & self.inward[target]), key=order)
            done |= found
            reached = found
        return parents

    def _gap(self, a: int, b: int) -> int:
        step = (b - a) % self.num_devices
        return min(step, self.num_devices - step)


def circuits_in_group(degree: int, has_ring: bool) -> int:
    """Return Delta: the circuits of a device for its own group, one kept for a data-parallel ring (MODEL D14)."""
    return degree - 1 if has_ring else degree


def make_window(
    num_devices: int,
    degree: int | None,
    *,
    kind: str = "symmetric",
    has_ring: bool = True,
    connected: np.ndarray | None = None,
) -> Window | None:
    """Return the window of a group whose devices hold ``degree`` circuits each; None without a limit.

    Model: Delta = degree - 1 if the group takes part in data-parallel rings, else degree. No limit if all num_devices
        - 1 others are within it; else "symmetric": |i - j| mod k <= Delta // 2, so that circuits in and out stay
        within it, and "paper": (j - i) mod k <= Delta from i to j.
    Args:
        kind: symmetric or paper (MODEL D14).
        has_ring: the group takes part in data-parallel rings.
        connected: which devices the fabric can connect at all, booleans (num_devices, num_devices); None if any.
    """
    if kind not in WINDOWS:
        raise ConfigError(f"strategy.placing.window is {kind!r}; it must be one of: {', '.join(WINDOWS)}")
    ahead = behind = num_devices
    if degree is not None and num_devices - 1 > circuits_in_group(degree, has_ring):
        ahead = circuits_in_group(degree, has_ring)
        behind = 0
        if kind == "symmetric":
            ahead = behind = ahead // 2
    outward = []
    for i in range(num_devices):
        steps = range(-min(behind, num_devices - 1), min(ahead, num_devices - 1) + 1)
        near = {(i + step) % num_devices for step in steps}
        outward.append(sum(1 << j for j in near if i == j or connected is None or connected[i, j]))
    window = Window(num_devices, tuple(outward))
    return None if window.clique == num_devices else window


def bits(mask: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
