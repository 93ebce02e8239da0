"""packets.skip: messages that meet as others met before are replayed, and every time is that of walked packets.

Each run is made twice, with and without: sent and finish times and bytes of links must be equal to the bit. The share
that was walked is in the run's last note.
"""

import re

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import PacketOptions
from rostam_py.errors import ConfigError

SMALL = {"packet_bytes": 2048, "buffer_bytes": 1_000_000}
FABRICS = {
    "tree": ("fat_tree", {"num_accelerators": 16, "radix": 8}),
    "tapered": ("fat_tree", {"num_accelerators": 24, "leaf_down": 6, "leaf_up": 2}),
    "torus": ("torus", {"dims": (4, 4)}),
    "hx2": ("hammingmesh", {"board": (2, 2), "boards": (2, 2)}),
    "flat": ("electrical_flat", {"num_accelerators": 12}),
    "dragonfly": (
        "dragonfly",
        {"routers_per_group": 4, "terminals_per_router": 2, "global_links_per_router": 2, "num_groups": 5},
    ),
}


def options(values, **more):
    given = {**values, **more}
    sizes = {key: f"{value} B" for key, value in given.items() if key.endswith("_bytes")}
    return PacketOptions(**{**given, **sizes})


def walked_share(result):
    """Of the bytes over links."""
    return float(re.search(r"([\d.e+-]+)% of the bytes over links were walked", result.notes[-1]).group(1)) / 100


def both(fabric, values=None, **flows):
    """Return the share that was walked, after checking that all times are as without."""
    plain, skipped = (
        rostam.run_flows(fabric, fidelity="packet", packets=options(values or SMALL, skip=skip), **flows)
        for skip in (False, True)
    )
    for what in ("sent_s", "finish_s", "link_bytes"):
        assert getattr(plain, what).tobytes() == getattr(skipped, what).tobytes(), what
    return walked_share(skipped)


def repeated(src, dst, size, offsets, count, gap):
    """The flows `count` times, `gap` seconds apart."""
    starts = (np.arange(count)[:, None] * gap + np.asarray(offsets)).ravel()
    return {
        "src": np.tile(src, count),
        "dst": np.tile(dst, count),
        "num_bytes": np.tile(size, count),
        "start_s": starts,
    }


def test_of_equal_messages_one_after_another_one_is_walked():
    fabric = rostam.fabric("custom", links=[("a0", "a1", 1e9, 5e-9), ("a1", "a2", 1e9, 5e-9)], forwarding=True)
    flows = repeated([0], [2], [10_000], [0], 7, 1e-4)
    assert both(fabric, **flows) == pytest.approx(1 / 7, rel=1e-4)


def test_routes_of_one_shape_are_alike():
    # 0 -> 1 in one leaf, then the same in each of the other three.
    fabric = rostam.fabric("fat_tree", num_accelerators=16, radix=8)
    src = np.array([0, 4, 8, 12])
    flows = {"src": src, "dst": src + 1, "num_bytes": [50_000] * 4, "start_s": np.arange(4) * 1e-5}
    assert both(fabric, routing="spray", **flows) == pytest.approx(1 / 4, rel=1e-4)


def test_links_of_another_rate_are_another_shape():
    rows = [("a0", "s0", 1e9, 5e-9), ("a1", "s0", 1e9, 5e-9), ("a2", "s0", 2e9, 5e-9), ("a3", "s0", 1e9, 5e-9)]
    fabric = rostam.fabric("custom", links=rows, switch_latency=3e-9, forwarding=False)
    flows = {"num_bytes": [50_000] * 3, "start_s": np.arange(3) * 1e-3}
    assert both(fabric, src=[0, 1, 2], dst=[1, 3, 3], **flows) == pytest.approx(2 / 3, rel=1e-4)


def test_what_meets_otherwise_is_walked_from_its_beginning():
    # The pair meets twice in the same way; the third time its second message is 1 us later.
    fabric = rostam.fabric("fat_tree", num_accelerators=16, radix=8, link_bandwidth="100 Gb/s")
    flows = repeated([0, 1], [2, 2], [200_000] * 2, [0, 2e-6], 3, 1e-3)
    flows["start_s"][-1] += 1e-6
    assert both(fabric, **flows) == pytest.approx(2 / 3, rel=1e-4)


def test_messages_that_come_in_between_break_in():
    # Alone it is known; the second time another comes onto its last link half way.
    fabric = rostam.fabric("fat_tree", num_accelerators=16, radix=8, link_bandwidth="100 Gb/s")
    flows = {"src": [0, 0, 1], "dst": [2, 2, 2], "num_bytes": [200_000] * 3, "start_s": [0, 1e-3, 1e-3 + 8e-6]}
    assert both(fabric, **flows) == pytest.approx(1, rel=1e-4)


def test_turns_of_places_are_part_of_what_repeats():
    # 25 packets over 4 uplinks leave the turn one further each time: the fifth message meets the first one's.
    fabric = rostam.fabric("fat_tree", num_accelerators=16, radix=8)
    flows = repeated([0], [12], [25 * 2048], [0], 12, 1e-4)
    assert both(fabric, routing="spray", **flows) == pytest.approx(4 / 12, rel=1e-4)


@pytest.mark.parametrize("routing", ["hash", "spray", "adaptive", "turns", "turns_adaptive", "valiant", "ugal"])
@pytest.mark.parametrize("where", FABRICS)
def test_repeated_bursts_take_what_packets_take(where, routing):
    rng = np.random.default_rng([list(FABRICS).index(where), len(routing)])
    name, params = FABRICS[where]
    fabric = rostam.fabric(name, **params)
    count = fabric.num_accelerators
    src, dst = rng.integers(0, count, (2, 12))
    src, dst = src[src != dst], dst[src != dst]
    size = rng.integers(1, 60_000, len(src))
    offsets = rng.integers(0, 3, len(src)) * 2.5e-7
    flows = repeated(src, dst, size, offsets, 6, 5e-5)
    speedup, flit = int(rng.integers(1, 4)), int(rng.choice([0, 256]))
    share = both(fabric, {**SMALL, "crossbar_speedup": speedup, "flit_bytes": flit}, routing=routing, **flows)
    if routing in ("spray", "adaptive", "turns"):  # others draw ways, by message or packet, or go by load
        assert share < 1


def test_buffers_that_fill_take_what_packets_take():
    # Messages follow each other while word of the room of those before is on its way.
    fabric = rostam.fabric("fat_tree", num_accelerators=16, radix=8, link_latency="2 us")
    for buffer_bytes in (4096, 20_000, 200_000):
        both(fabric, {"packet_bytes": 2048, "buffer_bytes": buffer_bytes}, routing="spray",
             **repeated([0, 4, 1], [1, 1, 9], [40_000] * 3, [0, 0, 1e-6], 5, 1e-5))  # fmt: skip


def test_a_network_that_changes_is_walked():
    fabric = rostam.fabric("fat_tree", num_accelerators=16, radix=8)
    flows = {**repeated([0, 1], [2, 2], [40_000] * 2, [0, 0], 6, 1e-5), "routing": "spray"}
    events = [rostam.Failure(time="35 us", kind="links", number=4)]
    share = both(fabric, events=events, **flows)
    assert 1 / 6 < share < 1


@pytest.mark.parametrize(
    ("collective", "algorithm"),
    [
        ("all_reduce", "ring"),
        ("all_reduce", "halving_doubling"),
        ("all_to_all", "direct"),
        ("broadcast", "binomial_tree"),
    ],
)
@pytest.mark.parametrize("where", ["tree", "torus", "hx2"])
def test_collectives_take_what_packets_take(where, collective, algorithm):
    name, params = FABRICS[where]
    fabric = rostam.fabric(name, **params)
    plain, skipped = (
        rostam.run_collective(
            fabric, collective, num_bytes="1 MiB", algorithm=algorithm, fidelity="packet",
            packets=PacketOptions(skip=skip),
        )
        for skip in (False, True)
    )  # fmt: skip
    assert plain.time_ps == skipped.time_ps
    assert plain.link_bytes.tobytes() == skipped.link_bytes.tobytes()
    if algorithm == "ring" and where == "tree":
        # 12 of 16 messages stay in a leaf, two links each, and are replayed after the first of 30 steps; the 4 others
        # have 4 links each of 40 in all, and turns that differ from step to step.
        assert walked_share(skipped) < 16 / 40 + 24 / 40 * 2 / 30 + 0.01


def test_a_step_of_a_job_takes_what_packets_take():
    graph = rostam.trace("gpt_125m")
    machine = rostam.Machine(fabric=rostam.fabric("fat_tree", num_accelerators=16, radix=8), accelerator="a100_80gb")
    plan = rostam.place(graph, machine, global_batch=16, strategy=rostam.Strategy(dp=4, tp=2, pp=2), software="ideal")
    plain, skipped = (
        rostam.simulate(plan, fidelity="packet", packets=PacketOptions(skip=skip)) for skip in (False, True)
    )
    assert skipped.iteration_time_s == pytest.approx(plain.iteration_time_s, rel=1e-3)
    assert skipped.bytes_sent == plain.bytes_sent
    assert np.asarray(skipped.link_bytes).sum() == np.asarray(plain.link_bytes).sum()
    note = next(note for note in skipped.notes if "packets.skip" in note)
    assert float(re.search(r"([\d.]+)% of the bytes", note).group(1)) < 60


def test_other_engines_have_nothing_to_skip():
    fabric = rostam.fabric("electrical_flat", num_accelerators=2)
    with pytest.raises(ConfigError, match=r"packets\.skip is set, but this fidelity moves whole messages"):
        rostam.run_flows(fabric, src=[0], dst=[1], num_bytes=[1], packets=PacketOptions(skip=True))
    with pytest.raises(ConfigError, match=r"packets\.skip is 'often'; it must be true or false"):
        PacketOptions(skip="often")
