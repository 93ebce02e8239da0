"""Adaptive routing over trees whose trunks are parallel cables of very different rates, against closed forms in exact
fractions: a trunk is one link of the cables' sum, and its load stands on the cables as evenly as they bear it."""

from fractions import Fraction

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import _core

_LEAST = 1e3  # of a cable [bytes/s]


class Trunks:
    """A random tree of accelerators and switches; between neighbours one to four cables."""

    def __init__(self, rng, ratio):
        self.rng, self.ratio = rng, ratio
        self.num_accelerators, num_switches = int(rng.integers(2, 7)), int(rng.integers(0, 4))
        self.ends, self.cables = [], []
        if num_switches == 0:
            self.num_accelerators = 2
            self._add(0, 1)
        for switch in range(num_switches):
            if switch:
                self._add(self.num_accelerators + switch, self.num_accelerators + int(rng.integers(switch)))
        for accelerator in range(self.num_accelerators if num_switches else 0):
            self._add(accelerator, self.num_accelerators + int(rng.integers(num_switches)))

    def _add(self, a, b):
        kind, number = self.rng.integers(3), self.rng.integers(1, 5)
        if kind == 0:
            steps = self.rng.choice([1.0, self.ratio], number)
        elif kind == 1:
            steps = self.ratio ** self.rng.uniform(0, 1, number)
        else:
            steps = self.rng.choice([1.0, self.ratio, self.ratio**0.5], number) * self.rng.choice([1.0, 1.37], number)
        self.ends.append((a, b))
        self.cables.append([_LEAST * float(step) for step in steps])

    def fabric(self):
        links = {"src": [], "dst": [], "bandwidth": [], "latency": []}
        for (a, b), cables in zip(self.ends, self.cables, strict=True):
            for cable in cables:
                for key, value in zip(links, (a, b, cable, 1e-6), strict=True):
                    links[key].append(value)
        return rostam.fabric("custom", links=links, num_accelerators=self.num_accelerators)

    def path(self, src, dst):
        """(trunk, direction) along the only path."""
        ways = [(src, [])]
        for node, path in ways:
            if node == dst:
                return path
            for trunk, (a, b) in enumerate(self.ends):
                if node in (a, b) and all(trunk != one for one, _ in path):
                    ways.append((b if node == a else a, [*path, (trunk, node == a)]))
        raise AssertionError(f"the tree has no path from {src} to {dst}")

    def fair_rates(self, paths, caps):
        """Water-filling: raise all rates together, hold those whose trunk is full or whose cap is reached."""
        left = {one: sum(map(Fraction, self.cables[one[0]])) for path in paths for one in path}
        rates, rising = [Fraction(0)] * len(paths), set(range(len(paths)))
        while rising:
            users = {one: sum(one in paths[k] for k in rising) for one in left}
            level = min(left[one] / users[one] for one in left if users[one])
            level = min([level, *(Fraction(caps[k]) for k in rising if caps[k])])
            full = {one for one in left if users[one] and left[one] / users[one] == level}
            for k in [k for k in rising if full & set(paths[k]) or (caps[k] and Fraction(caps[k]) == level)]:
                rates[k] = level
                rising.discard(k)
                for one in paths[k]:
                    left[one] -= level
        return rates

    def least_squares(self, paths, rates):
        """The sum of squared loads: of each trunk as even as its cables bear it, the smallest first."""
        squares = Fraction(0)
        for trunk in {one for path in paths for one in path}:
            load = sum(rate for path, rate in zip(paths, rates, strict=True) if trunk in path)
            cables = sorted(map(Fraction, self.cables[trunk[0]]))
            for number, cable in enumerate(cables):
                part = min(cable, load / (len(cables) - number))
                squares += part * part
                load -= part
            assert load == 0
        return squares


@pytest.mark.parametrize("ratio", [1e1, 1e3, 1e5, 1e6, 1e7, 1e9, 1e12], ids="{:.0e}".format)
def test_cables_of_any_two_rates_get_fair_rates_and_least_squares(ratio):
    for seed in range(12):
        rng = np.random.default_rng([seed, 7])
        trunks = Trunks(rng, ratio)
        pairs = [rng.choice(trunks.num_accelerators, 2, replace=False).tolist() for _ in range(rng.integers(1, 12))]
        caps = [0.0 if rng.random() < 0.7 else float(_LEAST * ratio ** rng.uniform(0, 1)) for _ in pairs]
        router = trunks.fabric().router("adaptive", enable_bundling=False)
        src, dst = (list(ends) for ends in zip(*pairs, strict=True))
        rates, loads = _core.adaptive_rates(router, src, dst, caps)
        paths = [trunks.path(a, b) for a, b in pairs]
        fair = trunks.fair_rates(paths, caps)
        np.testing.assert_allclose(rates, np.array(fair, dtype=float), rtol=1e-9, err_msg=f"seed {seed}")
        assert (np.array(loads) <= router.capacities * (1 + 1e-7)).all(), seed
        least = trunks.least_squares(paths, fair)
        assert sum(Fraction(load) ** 2 for load in loads) == pytest.approx(least, rel=1e-5), seed


@pytest.mark.parametrize("ratio", np.logspace(3, 12, 19), ids="{:.1e}".format)
def test_two_cables_bear_a_capped_message_and_give_their_sum_to_a_free_one(ratio):
    links = {"src": [0, 0], "dst": [1, 1], "bandwidth": [1e9, 1e9 / ratio], "latency": [0.0, 0.0]}
    fabric = rostam.fabric("custom", links=links, num_accelerators=2)
    router = fabric.router("adaptive", enable_bundling=False)
    rates, loads = _core.adaptive_rates(router, [0], [1], [5e8])
    assert rates == [5e8]
    small = 1e9 / ratio
    assert np.square(loads).sum() == pytest.approx(small**2 + (5e8 - small) ** 2, rel=1e-9)
    flows = rostam.run_flows(fabric, src=[0], dst=[1], num_bytes=[10**9], routing="adaptive")
    assert flows.finish_s[0] == pytest.approx(1 / (1 + 1 / ratio), rel=1e-11, abs=2e-12)
