"""Adaptive routing: rates and divisions against linear programs by HiGHS, times of messages against those rates."""

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import coo_array

import rostam_py as rostam
from rostam_py import _core
from rostam_py.errors import ConfigError, NoRouteError
from rostam_py.fabrics import build_fabric

FABRICS = [
    ("torus", {"dims": (4, 3)}),
    ("torus", {"dims": (3, 3, 2)}),
    ("hammingmesh", {"board": (2, 2), "boards": (2, 2)}),
    ("hyperx", {"dims": (3, 3)}),
    ("dragonfly", {"routers_per_group": 4, "terminals_per_router": 2, "global_links_per_router": 2, "num_groups": 5}),
    ("fat_tree", {"num_accelerators": 32, "radix": 8}),
]
_SCALE = 1e9


class Flows:
    """Flows over the hops of their paths, as rows of a linear program: conservation at nodes, capacity of links."""

    def __init__(self, router, src, dst, caps):
        self.num_flows, self.capacities = len(src), router.capacities / _SCALE
        rows, columns, values, on_link = [], [], [], []
        self.num_rows = 0
        column = self.num_flows  # the first ones are the flows' rates
        for flow, (a, b) in enumerate(zip(src, dst, strict=True)):
            nodes, hops = router.steps(a, b)
            for n, (_, _, first, end) in enumerate(nodes):
                for hop in range(first, end):
                    rows += [self.num_rows + n, self.num_rows + hops[hop][1]]
                    columns += [column + hop] * 2
                    values += [1, -1]
            rows += [self.num_rows, self.num_rows + len(nodes) - 1]
            columns += [flow, flow]
            values += [-1, 1]
            on_link += [(hop[0], column + h) for h, hop in enumerate(hops)]
            self.num_rows += len(nodes)
            column += len(hops)
        self.num_columns = column
        self.conserve = coo_array((values, (rows, columns)), (self.num_rows, column)).tocsr()
        links, of = zip(*on_link, strict=True)
        self.load = coo_array((np.ones(len(links)), (links, of)), (len(self.capacities), column)).tocsr()
        self.caps = [cap / _SCALE if cap else None for cap in caps]

    def best(self, objective, least):
        """Maximise the objective; flow i sends `least[i]` = (from, to)."""
        bounds = list(least) + [(0, None)] * (self.num_columns - self.num_flows)
        found = linprog(
            -objective, A_ub=self.load, b_ub=self.capacities, A_eq=self.conserve, b_eq=np.zeros(self.num_rows),
            bounds=bounds,
        )  # fmt: skip
        assert found.status == 0, found.message
        return found

    def fair_rates(self):
        """Raise all flows together, hold those that cannot rise alone, go on with the others."""
        rates = np.zeros(self.num_flows)
        is_open = np.ones(self.num_flows, dtype=bool)
        level = 0.0
        while is_open.any():
            # The level is one more column, which open flows equal.
            extra = coo_array(
                (np.r_[np.ones(is_open.sum()), -np.ones(is_open.sum())],
                 (np.r_[np.arange(is_open.sum())] .tolist() * 2,
                  np.r_[np.flatnonzero(is_open), np.full(is_open.sum(), self.num_columns)])),
                (is_open.sum(), self.num_columns + 1),
            )  # fmt: skip
            equal = np.vstack([np.c_[self.conserve.toarray(), np.zeros(self.num_rows)], extra.toarray()])
            bounds = [(rates[i], rates[i]) if not is_open[i] else (0, self.caps[i]) for i in range(self.num_flows)]
            bounds += [(0, None)] * (self.num_columns - self.num_flows) + [(0, None)]
            objective = np.zeros(self.num_columns + 1)
            objective[-1] = -1
            found = linprog(
                objective, A_ub=np.c_[self.load.toarray(), np.zeros(len(self.capacities))], b_ub=self.capacities,
                A_eq=equal, b_eq=np.zeros(len(equal)), bounds=bounds,
            )  # fmt: skip
            assert found.status == 0, found.message
            level = found.x[-1]
            low = max(0.0, level * (1 - 1e-9))
            held = []
            for i in np.flatnonzero(is_open):
                least = [(max(0.0, rates[j] * (1 - 1e-9)), rates[j]) if not is_open[j] else (low, self.caps[j])
                         for j in range(self.num_flows)]  # fmt: skip
                objective = np.zeros(self.num_columns)
                objective[i] = 1
                if self.best(objective, least).x[i] <= level * (1 + 1e-6) + 1e-9:
                    held.append(i)
            assert held
            rates[is_open] = level
            is_open[held] = False
        return rates * _SCALE


def drawn(rng, name, options, num_flows, num_failed):
    fabric = build_fabric(name, **options)
    if num_failed:
        fabric = fabric.with_failures(links=rng.choice(fabric.num_links // 2, num_failed, replace=False).tolist())
    router = fabric.router("adaptive", enable_bundling=False)
    src, dst = [], []
    while len(src) < num_flows:
        a, b = rng.choice(fabric.num_accelerators, 2, replace=False).tolist()
        try:
            router.steps(a, b)
        except NoRouteError:
            continue
        src.append(a)
        dst.append(b)
    caps = [0.0 if rng.random() < 0.8 else float(rng.uniform(0.05, 1)) * router.capacities.max() for _ in src]
    return router, src, dst, caps


@pytest.mark.parametrize(("name", "options"), FABRICS, ids=lambda one: one if isinstance(one, str) else "")
@pytest.mark.parametrize("seed", range(4))
def test_rates_are_max_min_fair_and_loads_of_least_squares(name, options, seed):
    rng = np.random.default_rng([seed, len(name)])
    router, src, dst, caps = drawn(rng, name, options, num_flows=int(rng.integers(2, 9)), num_failed=int(seed % 2))
    rates, loads = _core.adaptive_rates(router, src, dst, caps)
    flows = Flows(router, src, dst, caps)
    np.testing.assert_allclose(rates, flows.fair_rates(), rtol=1e-6)
    loads = np.array(loads) / _SCALE
    assert (loads <= flows.capacities * (1 + 1e-9)).all()
    # A point of a polytope has the least norm if no other is nearer along it.
    fixed = [(rate / _SCALE * (1 - 1e-10), rate / _SCALE) for rate in rates]
    least = -flows.best(-(flows.load.T @ loads), fixed).fun
    assert loads @ loads - abs(least) <= 1.1e-5 * (loads @ loads)


def test_a_flow_goes_where_another_one_does_not():
    # 0 to 5 has two paths on a 4 x 4 torus, one behind the link that 0 to 1 takes.
    router = build_fabric("torus", dims=(4, 4)).router("adaptive", enable_bundling=False)
    capacity = float(router.capacities[0])
    rates, loads = _core.adaptive_rates(router, [0, 0], [5, 1])
    assert rates == [capacity, capacity]
    assert sorted(load for load in loads if load) == [capacity] * 3


@pytest.mark.parametrize("seed", range(6))
def test_messages_end_when_these_rates_from_event_to_event_say(seed):
    rng = np.random.default_rng(seed)
    fabric = build_fabric("torus", dims=(4, 4))
    router = fabric.router("adaptive", enable_bundling=False)
    pairs = [rng.choice(16, 2, replace=False).tolist() for _ in range(7)]
    src, dst = (list(one) for one in zip(*pairs, strict=True))
    left = rng.integers(10**6, 10**8, 7).astype(float)
    found = rostam.run_flows(fabric, src=src, dst=dst, num_bytes=left.astype(int).tolist(), routing="adaptive")
    now, sent, on_links = 0.0, np.zeros(7), np.zeros(len(router.capacities))
    while (active := np.flatnonzero(left > 1e-3)).size:
        rates, loads = _core.adaptive_rates(router, [src[i] for i in active], [dst[i] for i in active])
        step = min(left[i] / rate for i, rate in zip(active, rates, strict=True))
        now += step
        on_links += np.array(loads) * step
        for i, rate in zip(active, rates, strict=True):
            left[i] -= rate * step
            sent[i] = now
    np.testing.assert_allclose(found.sent_s, sent, atol=8e-12)  # a ps an event
    # Divisions that are within 1e-5 of the least squares may differ a little: flows come in another order.
    np.testing.assert_allclose(np.sort(found.link_bytes), np.sort(on_links), atol=5e-3 * on_links.max())


def test_a_torus_does_what_it_can_for_a_random_permutation():
    rng = np.random.default_rng(0)
    fabric, to = build_fabric("torus", dims=(4, 4)), rng.permutation(16)
    src = [i for i in range(16) if to[i] != i]
    last = {
        name: rostam.run_flows(
            fabric, src=src, dst=[int(to[i]) for i in src], num_bytes=[10**7] * len(src), routing=name
        ).finish_s.max()
        for name in ("adaptive", "spray", "hash")
    }
    assert last["adaptive"] < last["spray"] < last["hash"]


def test_uniform_traffic_is_divided_evenly():
    fabric = rostam.fabric("torus", dims=(4, 4))
    adaptive, spray = (
        rostam.run_collective(fabric, "all_to_all", num_bytes="16 MB", routing=name) for name in ("adaptive", "spray")
    )
    assert abs(adaptive.time_ps - spray.time_ps) <= 2


def test_planes_that_differ_divide_their_own_part():
    fabric = build_fabric("torus", dims=(4,), planes=2).with_failures(links=[0])
    plain = rostam.run_flows(fabric, src=[0], dst=[1], num_bytes=[10**6], routing="spray")
    divided = rostam.run_flows(fabric, src=[0], dst=[1], num_bytes=[10**6], routing="adaptive")
    assert divided.finish_s == pytest.approx(plain.finish_s, rel=1e-9)  # one path in each plane
    both = rostam.run_flows(fabric, src=[0, 0], dst=[2, 1], num_bytes=[10**6] * 2, routing="adaptive")
    assert (both.bytes_left == 0).all()


def test_capacities_that_change_move_what_is_left():
    fabric = build_fabric("torus", dims=(4, 4))
    router = fabric.router("adaptive", enable_bundling=False)
    cut = next(link for link, load in enumerate(_core.adaptive_rates(router, [0], [5])[1]) if load)
    bandwidth, total = float(router.capacities[0]), 4e6
    half = total / 2 / (2 * bandwidth)
    found = rostam.run_flows(
        fabric, src=[0], dst=[5], num_bytes=[int(total)], routing="adaptive",
        events=[rostam.LinkBandwidth(half, cut, 0.0)],
    )  # fmt: skip
    assert found.sent_s[0] == pytest.approx(half + total / 2 / bandwidth, rel=1e-6)


def test_what_it_cannot_do_is_refused():
    fabric = rostam.fabric("torus", dims=(4, 4))
    with pytest.raises(ConfigError, match="no loads without time"):
        rostam.saturation_throughput(fabric, "all_to_all", "adaptive")
    with pytest.raises(ConfigError, match="exact only"):
        rostam.run_flows(fabric, src=[0], dst=[1], num_bytes=[1], routing="adaptive", tolerance=0.1)
    large = rostam.fabric("torus", dims=(16, 16))
    with pytest.raises(ConfigError, match="solves for up to 512"):
        rostam.run_collective(large, "all_to_all", num_bytes=10**6, routing="adaptive")
