"""Max-min sharing against oracles that share no code with the engine: linear programs and exact filling."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

import rostam_py as rostam


def random_fabric(rng, num_accelerators, num_switches):
    """Accelerators on random switches that form a random connected graph, all bandwidths different."""
    rows = []
    for a in range(num_accelerators):
        rows.append((f"a{a}", f"s{rng.integers(num_switches)}", float(rng.integers(2, 20)) * 1e9, 0.0))
    for s in range(1, num_switches):
        rows.append((f"s{s}", f"s{rng.integers(s)}", float(rng.integers(2, 20)) * 1e9, 0.0))
    for _ in range(num_switches):
        one, other = rng.choice(num_switches, 2, replace=False)
        rows.append((f"s{one}", f"s{other}", float(rng.integers(2, 20)) * 1e9, 0.0))
    return rostam.fabric("custom", links=rows)


def random_flows(rng, num_accelerators, num_flows):
    pairs = [rng.choice(num_accelerators, 2, replace=False) for _ in range(num_flows)]
    return [int(a) for a, _ in pairs], [int(b) for _, b in pairs]


def share_matrix(fabric, src, dst):
    """Return W (links, flows): the part of a sprayed flow that each link carries, and the links' capacities."""
    router = fabric.router("spray", enable_bundling=False)
    shares = np.zeros((len(router.capacities), len(src)))
    for f, (a, b) in enumerate(zip(src, dst, strict=True)):
        links, parts, _ = router.route(a, b)
        np.add.at(shares[:, f], links, parts)
    return shares, np.asarray(router.capacities)


def largest(columns, left, weights, floor):
    """Largest weighted sum of open rates, each >= floor, that fits into what is left; rates and capacities in GB/s."""
    bounds = [(floor, None)] * columns.shape[1]
    return linprog(-np.asarray(weights), A_ub=columns, b_ub=left, bounds=bounds)


def max_min_by_linear_programs(shares, capacity):
    """Raise the least rate as far as it goes, fix the flows that cannot go higher, repeat.

    A flow is fixed at the level t if the largest rate it can have while no open flow falls below t is t.
    """
    num_flows = shares.shape[1]
    fixed = np.full(num_flows, np.nan)
    while np.isnan(fixed).any():
        open_flows = np.flatnonzero(np.isnan(fixed))
        left = capacity / 1e9 - shares @ np.nan_to_num(fixed)
        columns = shares[:, open_flows]
        # All open flows at one rate: one variable.
        level = -largest(columns.sum(axis=1, keepdims=True), left, [1.0], 0.0).fun
        for f, weights in enumerate(np.eye(len(open_flows))):
            best = largest(columns, left + 1e-9, weights, level)
            assert best.status == 0, best.message
            if -best.fun <= level + 1e-6:
                fixed[open_flows[f]] = level
    return fixed * 1e9


@pytest.mark.parametrize("seed", range(25))
def test_flows_sized_by_the_linear_programs_rates_all_end_at_one_second(seed):
    rng = np.random.default_rng(seed)
    fabric = random_fabric(rng, 8, int(rng.integers(2, 6)))
    src, dst = random_flows(rng, 8, int(rng.integers(2, 14)))
    rates = max_min_by_linear_programs(*share_matrix(fabric, src, dst))
    result = rostam.run_flows(fabric, src=src, dst=dst, num_bytes=[round(r) for r in rates], routing="spray")
    # Sizes are rounded to a byte of at least 1e8, the programs' tolerance is 1e-7.
    assert result.sent_s == pytest.approx(np.ones(len(src)), rel=1e-6)


def exact_rates(shares, capacity):
    """Progressive filling in rational numbers; shares is a list of {link: Fraction}."""
    rates = {}
    while len(rates) < len(shares):
        levels = {}
        for link, total in capacity.items():
            weight = sum(s.get(link, 0) for f, s in enumerate(shares) if f not in rates)
            if weight:
                levels[link] = (total - sum(shares[f].get(link, 0) * r for f, r in rates.items())) / weight
        level = min(levels.values())
        full = {link for link, value in levels.items() if value == level}
        for f, s in enumerate(shares):
            if f not in rates and full & set(s):
                rates[f] = level
    return rates


def exact_ends(shares, capacity, sizes, starts, changes=()):
    """Ends of flows in seconds, as Fractions, by an event loop over exact rates. Changes: (time, link, factor)."""
    left = {f: Fraction(size) for f, size in enumerate(sizes)}
    ends, now = {}, Fraction(0)
    while left:
        running = sorted(f for f in left if starts[f] <= now)
        factors = {link: factor for time, link, factor in sorted(changes) if time <= now}
        rates = exact_rates(
            [shares[f] for f in running], {link: c * factors.get(link, 1) for link, c in capacity.items()}
        )
        candidates = [starts[f] for f in left if starts[f] > now]
        candidates += [time for time, _, _ in changes if time > now]
        candidates += [now + left[f] / rates[k] for k, f in enumerate(running)]
        later = min(candidates)
        for k, f in enumerate(running):
            left[f] -= rates[k] * (later - now)
            if left[f] == 0:
                ends[f] = later
                del left[f]
        now = later
    return [ends[f] for f in range(len(sizes))]


@pytest.mark.parametrize("seed", range(40))
def test_staggered_weighted_flows_end_when_exact_progressive_filling_says(seed):
    rng = np.random.default_rng(1000 + seed)
    fabric = random_fabric(rng, 7, int(rng.integers(2, 5)))
    num_flows = int(rng.integers(3, 11))
    src, dst = random_flows(rng, 7, num_flows)
    sizes = [int(s) for s in rng.integers(10**6, 10**9, num_flows)]
    starts_ps = [int(t) for t in rng.integers(0, 3 * 10**11, num_flows)]
    matrix, capacity = share_matrix(fabric, src, dst)
    shares = [
        {int(link): Fraction(matrix[link, f]).limit_denominator(10**6) for link in np.flatnonzero(matrix[:, f])}
        for f in range(num_flows)
    ]
    exact = exact_ends(
        shares, {link: Fraction(c) for link, c in enumerate(capacity)}, sizes, [Fraction(t, 10**12) for t in starts_ps]
    )
    result = rostam.run_flows(
        fabric, src=src, dst=dst, num_bytes=sizes, start_s=[t * 1e-12 for t in starts_ps], routing="spray"
    )
    # Every end before a flow's own may be late by 1 ps, and doubles hold bytes to 1e-16.
    errors = np.abs(result.sent_s - np.array([float(e) for e in exact])) * 1e12
    assert errors.max() <= 2 * num_flows + 1


@pytest.mark.parametrize("seed", range(30))
def test_flows_over_many_links_end_when_exact_progressive_filling_says(seed):
    # Routes of up to 21 links, so that guards on rates keep links out of problems, on a chain whose links are slow in
    # places that change: guards are lifted, lowered, and meet links of another bandwidth.
    rng = np.random.default_rng(4000 + seed)
    length = 20
    rows = [(f"a{s}", f"s{s}", float(rng.integers(5, 40)) * 1e9, 0.0) for s in range(length)]
    rows += [(f"s{s}", f"s{s + 1}", float(rng.integers(5, 120)) * 1e9, 0.0) for s in range(length - 1)]
    fabric = rostam.fabric("custom", links=rows)
    num_flows = int(rng.integers(10, 26))
    src, dst = random_flows(rng, length, num_flows)
    src[0], dst[0] = 0, length - 1
    sizes = [int(s) for s in rng.integers(10**7, 10**10, num_flows)]
    starts_ps = [int(t) for t in rng.integers(0, 3 * 10**11, num_flows)]
    matrix, capacity = share_matrix(fabric, src, dst)
    shares = [{int(link): Fraction(1) for link in np.flatnonzero(matrix[:, f])} for f in range(num_flows)]
    used = sorted({link for one in shares for link in one})
    changes = [
        (int(rng.integers(10**10, 10**12)), int(rng.choice(used)), Fraction(int(rng.integers(1, 13)), 4))
        for _ in range(6)
    ]
    exact = exact_ends(
        shares, {link: Fraction(c) for link, c in enumerate(capacity)}, sizes, [Fraction(t, 10**12) for t in starts_ps],
        [(Fraction(time, 10**12), link, factor) for time, link, factor in changes],
    )  # fmt: skip
    result = rostam.run_flows(
        fabric, src=src, dst=dst, num_bytes=sizes, start_s=[t * 1e-12 for t in starts_ps], routing="spray",
        events=[rostam.LinkBandwidth(time * 1e-12, link, float(factor)) for time, link, factor in changes],
    )  # fmt: skip
    errors = np.abs(result.sent_s - np.array([float(e) for e in exact])) * 1e12
    assert errors.max() <= 2 * (num_flows + len(changes)) + 1


@pytest.mark.parametrize("seed", range(20))
def test_bytes_over_every_link_are_the_sizes_times_the_shares(seed):
    rng = np.random.default_rng(2000 + seed)
    fabric = random_fabric(rng, 8, 4)
    src, dst = random_flows(rng, 8, 12)
    sizes = rng.integers(0, 10**9, 12)
    matrix, _ = share_matrix(fabric, src, dst)
    result = rostam.run_flows(
        fabric, src=src, dst=dst, num_bytes=sizes.tolist(), start_s=rng.random(12).tolist(), routing="spray"
    )
    assert result.link_bytes == pytest.approx(matrix @ sizes, rel=1e-12)
