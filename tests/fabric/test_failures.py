"""Failed parts: routed around, named when they isolate, drawn with a seed."""

import pickle

import numpy as np
import pytest

from rostam_py.errors import ConfigError, NoRouteError
from rostam_py.fabrics import build_fabric


def links_between(fabric, src, dst):
    table = fabric.links
    return table["cable"][(table["src"] == src) & (table["dst"] == dst)]


def test_a_failed_torus_link_is_routed_around():
    # Ring of 6: without the cable 0-1 the way from 0 to 1 is the other five links.
    fabric = build_fabric("torus", dims=(6,), link_latency="20 ns", switch_latency="40 ns")
    cut = fabric.with_failures(links=links_between(fabric, 0, 1))
    links, shares, latency_ps = cut.router().route(0, 1)
    assert (len(links), set(shares)) == (5, {1.0})
    assert latency_ps == 5 * 20_000 + 4 * 40_000
    assert cut.diameter() == 5
    assert fabric.diameter() == 3


def test_a_failed_accelerator_forwards_nothing_and_is_not_healthy():
    fabric = build_fabric("torus", dims=(6,)).with_failures(accelerators=[1])
    assert fabric.healthy_accelerators.tolist() == [0, 2, 3, 4, 5]
    assert len(fabric.router().route(0, 2)[0]) == 4
    with pytest.raises(NoRouteError, match=r"from accelerator 0 to accelerator 1 .* accelerator 1 has failed"):
        fabric.router().route(0, 1)


def test_an_isolated_pair_raises_no_route_naming_it():
    fabric = build_fabric("torus", dims=(6,))
    cut = fabric.with_failures(links=[*links_between(fabric, 0, 1), *links_between(fabric, 3, 4)])
    for routing in ("spray", "hash"):
        with pytest.raises(NoRouteError, match="from accelerator 0 to accelerator 2"):
            cut.router(routing).route(0, 2)
    assert len(cut.router().route(1, 3)[0]) == 2
    with pytest.raises(NoRouteError):
        cut.diameter()


def test_a_failed_leaf_isolates_its_accelerators_only():
    fabric = build_fabric("fat_tree", num_accelerators=16, radix=8).with_failures(switches=[1])
    router = fabric.router()
    with pytest.raises(NoRouteError, match="from accelerator 0 to accelerator 5"):
        router.route(0, 5)
    assert router.route(0, 9)[1].sum() > 1


def test_a_failed_spine_leaves_equal_shares_on_the_others():
    # 16 accelerators, radix 8: 4 leaves of 4 up, 2 spines, 2 links from each leaf to each spine.
    fabric = build_fabric("fat_tree", num_accelerators=16, radix=8)
    broken = fabric.with_failures(switches=[4])
    router = broken.router()
    links, shares, _ = router.route(0, 15)
    assert shares.tolist() == [1, 0.5, 0.5, 0.5, 0.5, 1]
    assert all(len(router.members[link]) == 1 for link in links)


def test_a_cut_uplink_splits_bundles_and_keeps_the_loads_of_leaves_it_does_not_touch():
    fabric = build_fabric("fat_tree", num_accelerators=32, radix=8, leaf_down=4, leaf_up=4)
    leaf, spine = 32, fabric.links["dst"][fabric.links["src"] == 32].max()
    broken = fabric.with_failures(links=links_between(fabric, leaf, spine)[:1])
    assert set(broken.links["bundle"]) == {-1}
    whole, split = fabric.router(), broken.router()
    # Leaf 1 to leaf 2: neither end lost a link, so every single link carries what it carried in the bundle.
    before = dict(per_link_shares(whole, 4, 8))
    after = dict(per_link_shares(split, 4, 8))
    assert before == pytest.approx(after, abs=1e-12)
    assert any(len(whole.members[link]) > 1 for link in whole.route(4, 8)[0])
    # Leaf 0 to leaf 2 uses the three uplinks that are left.
    first = [share for link, share in per_link_shares(split, 0, 8) if broken.links["src"][link] == leaf]
    assert first == pytest.approx([1 / 3] * 3)


def per_link_shares(router, src, dst):
    links, shares, _ = router.route(src, dst)
    for link, share in zip(links, shares, strict=True):
        for member in router.members[link]:
            yield member, share / len(router.members[link])


def test_random_failures_follow_the_seed_and_accumulate():
    fabric = build_fabric("torus", dims=(4, 4))
    once = fabric.with_random_failures(kind="links", count=5, seed=1)
    again = fabric.with_random_failures(kind="links", count=5, seed=1)
    other = fabric.with_random_failures(kind="links", count=5, seed=2)
    assert once.failures == again.failures != other.failures
    assert len(once.failures.links) == 5
    more = once.with_random_failures(kind="links", count=3, seed=1)
    assert len(more.failures.links) == 8
    assert set(once.failures.links) < set(more.failures.links)
    assert len(fabric.failures.links) == 0


def test_a_fabric_and_its_failures_survive_pickling():
    fabric = build_fabric("fat_tree", num_accelerators=16, radix=8).with_failures(switches=[4], accelerators=[3])
    copy = pickle.loads(pickle.dumps(fabric))
    assert copy.failures == fabric.failures
    assert copy.config == fabric.config
    np.testing.assert_array_equal(copy.links, fabric.links)


@pytest.mark.parametrize(
    ("failed", "message"),
    [
        ({"switches": [0]}, "failures.switches names 0; this fabric's switches are none"),
        ({"links": [99]}, r"failures.links names 99; this fabric's links are 0\.\.5"),
        ({"accelerators": [6]}, r"failures.accelerators names 6; .* 0\.\.5"),
        ({"links": [-1]}, "failures.links holds -1"),
        ({"links": 3}, "failures.links is 3; it must be a list of integers"),
        ({"switches": [0.5]}, r"failures.switches\[0\] is 0.5; it must be an integer"),
        ({"accelerators": [True]}, r"failures.accelerators\[0\] is True; it must be an integer"),
    ],
)
def test_failures_of_parts_that_do_not_exist_are_config_errors(failed, message):
    with pytest.raises(ConfigError, match=message):
        build_fabric("torus", dims=(6,)).with_failures(**failed)


def test_bad_random_failures_are_config_errors():
    fabric = build_fabric("torus", dims=(6,))
    with pytest.raises(ConfigError, match=r"failures.boards is 1, but fabric 'torus' has no boards; fail accelerators"):
        fabric.with_random_failures(kind="boards", count=1)
    with pytest.raises(ConfigError, match=r"failures.links is -1; it must be an integer >= 0"):
        fabric.with_random_failures(kind="links", count=-1)
    with pytest.raises(ConfigError, match=r"failures.seed is -1; it must be an integer from 0 to"):
        fabric.with_random_failures(kind="links", seed=-1)
    with pytest.raises(ConfigError, match=r"failures.links is 7; allowed: 0\.\.6"):
        fabric.with_random_failures(kind="links", count=7)


@pytest.mark.parametrize(
    ("name", "given", "kind", "scope"),
    [
        ("electrical_flat", {"num_accelerators": 8}, "links", "network"),  # all its cables are accelerators' own
        ("sip_ocs", {"num_accelerators": 8}, "links", "network"),
        ("torus", {"dims": (4, 4)}, "links", "host"),  # all of its accelerators forward
        ("torus", {"dims": (4, 4)}, "switches", "network"),
    ],
)
def test_a_share_of_parts_that_there_are_none_of_is_refused(name, given, kind, scope):
    fabric = build_fabric(name, accelerator_bandwidth="400 Gb/s", **given)
    with pytest.raises(ConfigError, match=rf"failures.{kind} is 50%, but fabric '{name}' has no working {kind}"):
        fabric.with_random_failures(kind, "50%", scope=scope)
    assert not fabric.with_random_failures(kind, "0%", scope=scope).failures
