"""What rates must not depend on: the order in which flows are given, and what shared the links before."""

import numpy as np
import pytest

import rostam_py as rostam


def random_run(seed, num_flows, routing):
    """Arguments of a run on an uneven tree: many flows, a third of them from time 0, none like another."""
    rng = np.random.default_rng(seed)
    pairs = [rng.choice(64, 2, replace=False) for _ in range(num_flows)]
    return {
        "src": [int(a) for a, _ in pairs],
        "dst": [int(b) for _, b in pairs],
        "num_bytes": [int(size) for size in rng.integers(10**5, 10**8, num_flows)],
        "start_s": [float(t) for t in np.maximum(rng.uniform(-1e-3, 2e-3, num_flows), 0).round(12)],
        "rate_cap": [float(cap) for cap in rng.uniform(1e9, 2e11, num_flows)],
        "routing": routing,
    }


@pytest.mark.parametrize("seed", range(8))
def test_flows_given_in_another_order_end_at_the_same_picosecond(seed):
    fabric = rostam.fabric("torus", dims=[8, 8], link_bandwidth="300 Gb/s").with_random_failures(
        kind="links", count=5, seed=seed
    )
    arguments = random_run(seed, 150, "spray")
    order = np.random.default_rng(seed + 100).permutation(150)
    mixed = {key: [value[k] for k in order] if key != "routing" else value for key, value in arguments.items()}
    one, other = rostam.run_flows(fabric, **arguments), rostam.run_flows(fabric, **mixed)
    assert other.sent_s.tolist() == one.sent_s[order].tolist()
    assert other.link_bytes == pytest.approx(one.link_bytes, rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_flows_that_have_come_and_gone_leave_no_trace(seed):
    # What runs until 1 s is over when the others start at 2 s: those end as if it had never been.
    fabric = rostam.fabric("fat_tree", num_accelerators=64, radix=8, link_bandwidth="100 Gb/s")
    before, after = random_run(seed, 120, "spray"), random_run(seed + 50, 120, "spray")
    after["start_s"] = [2 + t for t in after["start_s"]]
    both = {key: value if key == "routing" else value + after[key] for key, value in before.items()}
    assert max(rostam.run_flows(fabric, **before).sent_s) < 2
    alone, followed = rostam.run_flows(fabric, **after), rostam.run_flows(fabric, **both)
    assert followed.sent_s[120:].tolist() == alone.sent_s.tolist()


def test_flows_of_one_instant_that_end_one_by_one_change_nothing_for_the_slower_ones():
    # Rates differ (capacities do), so that sizes make 40 flows end at 40 instants; no flow is sped up by an earlier
    # end, as each has a trunk of its own: capacities / 2 hold for the whole run, by hand.
    rows = []
    for k in range(40):
        rows += [(f"a{3 * k}", f"s{2 * k}", 1e11), (f"a{3 * k + 1}", f"s{2 * k}", 1e11)]
        rows += [(f"s{2 * k}", f"s{2 * k + 1}", (k + 1) * 1e9), (f"a{3 * k + 2}", f"s{2 * k + 1}", 1e11)]
    fabric = rostam.fabric("custom", links=rows)
    result = rostam.run_flows(
        fabric,
        src=[a for k in range(40) for a in (3 * k, 3 * k + 1)],
        dst=[3 * k + 2 for k in range(40) for _ in range(2)],
        num_bytes=[10**9] * 80,
    )
    assert result.sent_s == pytest.approx(np.repeat([2 / (k + 1) for k in range(40)], 2), abs=1e-12)
