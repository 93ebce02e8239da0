"""Repair: move single units until every window holds and no device is overfilled, where a walk ended otherwise.

units = Units(devices=[0, 0, 4], num_bytes=[3, 3, 1], seconds=[1, 1, 1], edges={(0, 2)})
repair(units, 8, make_window(8, 3), capacity=4)        # one of the first two leaves device 0; 2 comes near 0
"""

import math
import random
from dataclasses import dataclass

import numpy as np

from rostam_py.placement.sip_ml.window import Window, bits

_TABU_MOVES = 8  # a unit stays for so many moves, plus up to as many more, so that the search leaves a local optimum
_PATIENCE_PER_UNIT = 10  # the search ends after so many moves without an improvement,
_LEAST_PATIENCE, _MOST_PATIENCE = 500, 10_000  # no fewer and no more than these
_FAIR_SHARE = 1.25  # of the mean compute of a device: busier ones are relieved
_NUM_STARTS, _FEW_UNITS = 4, 500  # few units are searched several times


@dataclass(slots=True)
class Units:
    """What moves as one: device, bytes and seconds of compute of each.

    edges: (sender, receiver), to be in range of each other.
    """

    devices: list[int]
    num_bytes: list[float]
    seconds: list[float]
    edges: set[tuple[int, int]]


def repair(units: Units, num_devices: int, window: Window | None, capacity: float) -> int:
    """Move units until windows and memory hold, or as far as it goes; return how many ended elsewhere.

    Model: min-conflicts with a tabu list. Of the units that violate a window or lie on an overfilled device one is
        drawn, and goes where its edges are the fewest steps out of range, plus the fewest bytes too many, in units of
        the mean unit; ties to the device with the least compute, then by lot of a fixed seed. The best state seen is
        kept; memory comes before windows. Where all holds, units leave devices far busier than the mean as long as all
        still holds.
    Cost: a move looks at all devices and once at each of the unit's edges.
    Source: Minton et al., "Minimizing conflicts", Artificial Intelligence 58 (1992); the weights are own.
    """
    before = list(units.devices)
    by_size = _by_size(units, num_devices, window)
    best = (math.inf, 0, before)
    for seed in range(_NUM_STARTS if len(before) <= _FEW_UNITS else 1):
        for start in (units, by_size) if best[0] > 0 else (units,):
            if best[0] > 0 or best[1] > 0:
                search = _Search(start, num_devices, window, capacity, seed)
                best = min(best, search.run())
    if best[:2] == (0.0, 0):
        search.balance()
        best = (0.0, 0, search.devices)
    units.devices[:] = best[2]
    return sum(a != b for a, b in zip(before, units.devices, strict=True))


def _by_size(units: Units, num_devices: int, window: Window | None) -> Units:
    """Place the largest units first, each on the emptiest device in range of those placed, where there is one."""
    everyone = (1 << num_devices) - 1
    neighbours: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in units.devices]
    for a, b in sorted(units.edges) if window is not None else ():
        neighbours[a].append((b, window.inward))  # type: ignore[union-attr]
        neighbours[b].append((a, window.outward))  # type: ignore[union-attr]
    load, placed = [0.0] * num_devices, [-1] * len(units.devices)
    for unit in sorted(range(len(placed)), key=lambda u: -units.num_bytes[u]):
        mask = everyone
        for other, masks in neighbours[unit]:
            if placed[other] >= 0:
                mask &= masks[placed[other]]
        device = min(bits(mask or everyone), key=load.__getitem__)
        placed[unit] = device
        load[device] += units.num_bytes[unit]
    return Units(placed, units.num_bytes, units.seconds, units.edges)


class _Search:
    def __init__(self, units: Units, num_devices: int, window: Window | None, capacity: float, seed: int) -> None:
        self.k, self.capacity = num_devices, capacity
        self.bytes, self.seconds = units.num_bytes, units.seconds
        self.devices = list(units.devices)
        everyone = (1 << num_devices) - 1
        self.outward = window.outward if window is not None else (everyone,) * num_devices
        self.inward = window.inward if window is not None else (everyone,) * num_devices
        # How far every device is out of range of one that reads from a unit there, or that it reads from, by their
        # device.
        self.reader_steps, self.source_steps = (
            np.array([self._steps(mask) for mask in masks]) for masks in (self.inward, self.outward)
        )
        count = len(self.devices)
        self.where = np.array(self.devices, dtype=np.intp)  # as devices
        self.readers: list[list[int]] = [[] for _ in range(count)]
        self.sources: list[list[int]] = [[] for _ in range(count)]
        for a, b in sorted(units.edges):
            self.readers[a].append(b)
            self.sources[b].append(a)
        self.ways = [(np.array(r, dtype=np.intp), np.array(s, dtype=np.intp))
                     for r, s in zip(self.readers, self.sources, strict=True)]  # fmt: skip
        self.near = [tuple({u, *self.readers[u], *self.sources[u]}) for u in range(count)]
        self.scale = max(sum(self.bytes) / max(1, count), 1e-300)
        self.rng = random.Random(seed)
        self.load, self.busy_s = [0.0] * num_devices, [0.0] * num_devices
        for unit, device in enumerate(self.devices):
            self.load[device] += self.bytes[unit]
            self.busy_s[device] += self.seconds[unit]
        self.violations = [self._violations(u) for u in range(count)]
        self.num_violations = sum(self.violations)
        self.violating = [u for u, v in enumerate(self.violations) if v]
        self.place_of = {u: place for place, u in enumerate(self.violating)}

    def _steps(self, mask: int) -> list[int]:
        """Return the steps from each device to the nearest in a mask."""
        allowed = list(bits(mask))
        return [min(min((d - a) % self.k, (a - d) % self.k) for a in allowed) for d in range(self.k)]

    def _conflicts(self, unit: int) -> list[int]:
        """Return, per device, by how many steps a unit's edges would be out of range there."""
        readers, sources = self.ways[unit]
        counts = self.reader_steps[self.where[readers]].sum(axis=0) + self.source_steps[self.where[sources]].sum(axis=0)
        found: list[int] = counts.tolist()
        return found

    def _excess(self, load: float) -> float:
        return max(0.0, load - self.capacity)

    def run(self) -> tuple[float, int, list[int]]:
        """Return (bytes too many, edges out of range, devices) of the best state seen."""
        best = (*self._state(), list(self.devices))
        patience = min(_MOST_PATIENCE, max(_LEAST_PATIENCE, _PATIENCE_PER_UNIT * len(self.devices)))
        free_at = [0] * len(self.devices)
        step = last = 0
        while (best[0] or best[1]) and step - last < patience:
            step += 1
            unit = self._draw()
            device = self._target(unit, free_at[unit] > step)
            if device < 0:
                continue
            self._move(unit, device)
            free_at[unit] = step + _TABU_MOVES + self.rng.randrange(_TABU_MOVES)
            state = self._state()
            if state < best[:2]:
                best, last = (*state, list(self.devices)), step
        return best

    def balance(self) -> None:
        """Relieve devices far busier than the mean wherever nothing is violated by that, until no move helps."""
        limit_s = _FAIR_SHARE * sum(self.busy_s) / self.k
        order = sorted(range(len(self.devices)), key=lambda u: (-self.seconds[u], u))
        has_moved = True
        while has_moved:
            has_moved = False
            for unit in order:
                here, size, seconds = self.devices[unit], self.bytes[unit], self.seconds[unit]
                if seconds <= 0 or self.busy_s[here] <= limit_s:
                    continue
                counts = self._conflicts(unit)
                room = [
                    d for d in range(self.k)
                    if not counts[d] and not self._excess(self.load[d] + size)
                    and self.busy_s[d] + seconds < self.busy_s[here] * (1 - 1e-9)
                ]  # fmt: skip
                if room:
                    self._move(unit, min(room, key=lambda d: (self.busy_s[d], d)))
                    has_moved = True

    def _state(self) -> tuple[float, int]:
        return math.fsum(load - self.capacity for load in self.load if load > self.capacity), self.num_violations

    def _draw(self) -> int:
        """Return a unit that violates a window or lies on an overfilled device."""
        full = [d for d, load in enumerate(self.load) if load > self.capacity]
        if full and (not self.violating or self.rng.random() < 0.5):
            device = self.rng.choice(full)
            return self.rng.choice([u for u, d in enumerate(self.devices) if d == device and self.bytes[u] > 0])
        return self.rng.choice(self.violating)

    def _target(self, unit: int, is_tabu: bool) -> int:
        """Return the device where a unit does least harm, -1 if it has to stay."""
        if self.k == 1:
            return -1
        counts, size, here = self._conflicts(unit), self.bytes[unit], self.devices[unit]
        lots = [self.rng.random() for _ in range(self.k - 1)]
        lots.insert(here, 1.0)
        if max(self.load) + size <= self.capacity:  # memory tells no two devices apart
            fewest = min(count for device, count in enumerate(counts) if device != here)
            tied = [device for device, count in enumerate(counts) if count == fewest and device != here]
            best = min(tied, key=lambda device: (self.busy_s[device], lots[device]))
            return -1 if is_tabu and fewest >= counts[here] else best
        left = self._excess(self.load[here]) - self._excess(self.load[here] - size)
        best, least = -1, (0.0, 0.0, 0.0)
        for device, load in enumerate(self.load):
            if device == here:
                continue
            added = self._excess(load + size) - self._excess(load) - left
            cost = round(counts[device] - counts[here] + added / self.scale, 9)
            order = (cost, self.busy_s[device], lots[device])
            if best < 0 or order < least:
                best, least = device, order
        return -1 if is_tabu and least[0] >= 0 else best

    def _move(self, unit: int, device: int) -> None:
        here = self.devices[unit]
        self.devices[unit] = self.where[unit] = device
        self.load[here] -= self.bytes[unit]
        self.load[device] += self.bytes[unit]
        self.busy_s[here] -= self.seconds[unit]
        self.busy_s[device] += self.seconds[unit]
        changes: dict[int, int] = {unit: 0}
        for others, masks in ((self.readers[unit], self.outward), (self.sources[unit], self.inward)):
            before, after = masks[here], masks[device]
            for other in others:
                place = self.devices[other]
                change = (before >> place & 1) - (after >> place & 1)
                changes[unit] += change
                changes[other] = changes.get(other, 0) + change
        for other in self.near[unit]:
            if changes[other]:
                self._change(other, changes[other])

    def _change(self, unit: int, change: int) -> None:
        """Note that so many more of a unit's edges are out of range."""
        before = self.violations[unit]
        self.violations[unit] += change
        self.num_violations += change
        if not before:
            self.place_of[unit] = len(self.violating)
            self.violating.append(unit)
        elif not self.violations[unit]:
            place, moved = self.place_of.pop(unit), self.violating.pop()
            if moved != unit:
                self.violating[place], self.place_of[moved] = moved, place

    def _violations(self, unit: int) -> int:
        here = self.devices[unit]
        return sum(not self.outward[here] >> self.devices[r] & 1 for r in self.readers[unit]) + sum(
            not self.inward[here] >> self.devices[s] & 1 for s in self.sources[unit]
        )
