"""Rings computed without their messages, against the same job message by message (fold=False simulates every one)."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import rostam_py as rostam
from rostam_py.errors import ConfigError

LENGTHS = st.integers(0, 5_000)  # ps; a byte takes 1,000
OPTIONS = st.fixed_dictionaries({
    "min_collective_ps": st.sampled_from((0, 30_000)),
    "comm_compute_fraction": st.sampled_from((0.0, 0.25)),
    "launch_latency_ps": st.sampled_from((0, 700)),
    "num_planes": st.integers(1, 3),
})  # fmt: skip

SHUFFLED = [
    13, 9, 14, 10, 1, 30, 25, 24, 23, 5, 8, 31, 19, 28, 11, 26,
    22, 6, 7, 3, 27, 15, 17, 21, 16, 4, 18, 12, 20, 29, 2, 0,
]  # fmt: skip


def rings_alone(graph, lengths, num_bytes, alpha_ps, slowdown, start_ps):
    """Two all-reduces, each behind a kernel of its own length on every rank, so that ranks join when they like."""
    g = graph(len(lengths), alpha_ps=alpha_ps)
    g.group(*np.roll(range(len(lengths)), 2).tolist())
    programs = []
    for length in lengths:
        tasks = [g.compute(length), g.all_reduce(num_bytes, deps=[0]), g.compute(1_000, deps=[1]),
                 g.all_reduce(num_bytes // 3, deps=[2]), g.compute(10, deps=[1]), g.compute(10, deps=[3])]  # fmt: skip
        programs.append(g.program(g.template(*tasks)))
    g.devices(programs, slowdown, start_ps)
    return g


def rings_and_visitors(graph, rows, kinds, sizes, num_groups, shift, alpha_ps):
    """Rings of neighbours (slot 0) and of strangers (slot 2), and messages to the device `shift` further (slot 1)."""
    p = len(rows)
    g = graph(p, alpha_ps=alpha_ps)
    length = p // num_groups
    for first in range(0, p, length):
        g.group(*range(first, first + length))
    for first in range(length):
        g.group(*range(first, p, length), slot=2)
    programs = []
    for d, row in enumerate(rows):
        g.peer(d, (d + shift) % p)
        tasks = []
        for channel, (kind, size, kernel) in enumerate(zip(kinds, sizes, row, strict=True)):
            last = len(tasks) - 1
            tasks.append(g.compute(kernel, deps=[last] if last >= 0 and kind != "visit" else []))
            if kind == "visit":
                tasks += [g.send(channel, size, deps=[len(tasks) - 1]), g.recv(channel)]
            elif kind == "near":
                tasks.append(g.all_reduce(size, deps=[len(tasks) - 1], ranks=length))
            elif num_groups > 1:
                tasks.append(g.all_reduce(size, deps=[len(tasks) - 1], slot=2, category=1, ranks=num_groups))
        programs.append(g.program(g.template(*tasks)))
    g.devices(programs)
    return g


def totals(raw):
    return {key: np.asarray(raw[key]).tolist() for key in ("sent_bytes", "received_bytes", "num_messages")}


@settings(max_examples=150, deadline=None)
@given(data=st.data(), p=st.integers(2, 9), num_bytes=st.integers(0, 40_000), alpha_ps=st.integers(0, 20_000))
def test_ranks_that_join_at_any_time_end_as_message_by_message(graph, data, p, num_bytes, alpha_ps):
    def draw(values):
        return data.draw(st.lists(values, min_size=p, max_size=p))

    options = data.draw(OPTIONS)
    job = draw(LENGTHS), num_bytes, alpha_ps, draw(st.sampled_from((1.0, 1.25, 3.0))), draw(st.integers(0, 9_000))
    whole, fast = (rings_alone(graph, *job).run(fold=fold, **options) for fold in (False, True))
    assert fast["ends"] == whole["ends"]
    assert fast["breakdown"] == whole["breakdown"]
    assert fast["device_end_ps"].tolist() == whole["device_end_ps"].tolist()
    assert totals(fast) == totals(whole)
    np.testing.assert_allclose(fast["link_bytes"], whole["link_bytes"], rtol=1e-9, atol=1e-3)
    np.testing.assert_allclose(fast["link_busy_s"], whole["link_busy_s"], rtol=1e-9, atol=1e-15)
    assert fast["num_solves"] == 0


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    dims=st.sampled_from([(2, 5), (3, 3), (3, 4), (4, 4), (5, 3), (2, 2, 5)]),
    num_bytes=st.integers(0, 40_000),
    latency_ps=st.sampled_from((0, 300, 20_000, 900_000)),
    iterations=st.integers(1, 3),
)
def test_ranks_between_messages_that_share_links_end_as_message_by_message(
    graph, data, dims, num_bytes, latency_ps, iterations
):
    # Row after row round a torus: a row's last rank sends over two links, which the messages of the rows before and
    # behind it use too. Of the others each has a link of its own.
    p = int(np.prod(dims))

    def draw(values):
        return data.draw(st.lists(values, min_size=p, max_size=p))

    options = data.draw(OPTIONS) | {"min_iterations": iterations, "max_iterations": iterations}
    lengths = draw(LENGTHS) if data.draw(st.booleans()) else [data.draw(LENGTHS)] * p
    job = lengths, num_bytes, 0, draw(st.sampled_from((1.0, 1.25, 3.0))), draw(st.sampled_from((0, 0, 0, 9_000)))
    runs = []
    for shortcuts in (False, True):
        g = rings_alone(graph, *job)
        g.fabric = rostam.fabric("torus", dims=list(dims), link_bandwidth=1e9, link_latency=latency_ps * 1e-12)
        runs.append(g.run(fold=False, shortcuts=shortcuts, **options))
    whole, fast = runs
    assert fast["ends"] == whole["ends"]
    assert fast["breakdown"] == whole["breakdown"]
    assert fast["device_end_ps"].tolist() == whole["device_end_ps"].tolist()
    assert totals(fast) == totals(whole)
    np.testing.assert_allclose(fast["link_bytes"], whole["link_bytes"], rtol=1e-9, atol=1e-3)
    np.testing.assert_allclose(fast["link_busy_s"], whole["link_busy_s"], rtol=1e-9, atol=1e-15)
    if num_bytes >= 3 * p:  # at least a byte for each message
        assert 0 < fast["num_solves"] < whole["num_solves"]


@settings(max_examples=300, deadline=None)
@given(
    data=st.data(),
    shape=st.sampled_from([(4, 1), (4, 2), (6, 2), (6, 3), (8, 2), (8, 4)]),
    kinds=st.lists(st.sampled_from(("near", "near", "far", "visit")), min_size=2, max_size=8),
    alpha_ps=st.sampled_from((0, 1_000, 50_000)),
    iterations=st.integers(1, 3),
)
def test_visitors_on_the_links_change_nothing_that_messages_would_not(graph, data, shape, kinds, alpha_ps, iterations):
    p, num_groups = shape
    assume("near" in kinds)
    row = st.lists(st.integers(0, 30_000), min_size=len(kinds), max_size=len(kinds))
    rows = [data.draw(row)] * p if data.draw(st.booleans()) else [data.draw(row) for _ in range(p)]
    sizes = [data.draw(st.integers(0, 60)) for _ in kinds]
    job = rows, kinds, sizes, num_groups, data.draw(st.integers(1, p - 1)), alpha_ps
    options = data.draw(OPTIONS) | {"min_iterations": iterations, "max_iterations": iterations}
    whole, fast = (rings_and_visitors(graph, *job).run(fold=fold, **options) for fold in (False, True))
    assert fast["ends"] == whole["ends"]
    assert fast["breakdown"] == whole["breakdown"]
    assert totals(fast) == totals(whole)
    np.testing.assert_allclose(fast["link_bytes"], whole["link_bytes"], rtol=1e-9, atol=1e-3)
    np.testing.assert_allclose(fast["link_busy_s"], whole["link_busy_s"], rtol=1e-9, atol=1e-15)


def test_a_ring_is_computed_until_somebody_comes_and_again_after(graph):
    def job(kinds):
        rows = [[1_000 * (d + 1)] * len(kinds) for d in range(4)]
        return rings_and_visitors(graph, rows, kinds, [4_000] * len(kinds), 1, 2, 0)

    quiet = job(["near"] * 3).run(fold=True)
    assert quiet["num_solves"] == 0
    assert quiet["num_messages"].tolist() == [3 * 4 * 6, 0]
    # The second all-reduce has the sends of the third task on its links; the others have none.
    visited, whole = (job(["near", "near", "visit", "near"]).run(fold=fold) for fold in (True, False))
    assert 0 < visited["num_solves"] < whole["num_solves"] / 2


@pytest.mark.parametrize("fold", [True, False])
def test_shortcuts_have_a_switch_of_their_own(graph, fold):
    def run(shortcuts):
        g = graph(6, alpha_ps=500)
        g.group(*range(6))
        program = g.program(g.template(g.compute(1_000), g.all_reduce(9_000, deps=[0]), g.compute(10, deps=[1])))
        g.devices([program] * 6)
        return g.run(fold=fold, shortcuts=shortcuts, min_iterations=2, max_iterations=2)

    fast, whole = run(True), run(False)
    assert fast["num_solves"] == 0 < whole["num_solves"]
    assert fast["num_simulated_devices"] == whole["num_simulated_devices"] == (1 if fold else 6)
    assert fast["ends"] == whole["ends"]
    assert fast["breakdown"] == whole["breakdown"]
    assert totals(fast) == totals(whole)


def test_a_link_that_changes_makes_no_quiet_ring(graph):
    run = rings_alone(graph, [0, 10, 20, 30], 4_000, 0, None, None).run
    assert run(fold=True)["num_solves"] == 0
    slowed, whole = (
        rings_alone(graph, [0, 10, 20, 30], 4_000, 0, None, None).run(fold=fold, link_events=[(2_000_000, 0, 5e8)])
        for fold in (True, False)
    )
    assert slowed["num_solves"] > 0
    assert slowed["ends"] == whole["ends"]


def test_ranks_that_disagree_are_told(graph):
    g = graph(2)
    g.group(0, 1)
    g.devices([g.program(g.template(g.compute(0), g.all_reduce(size, deps=[0]))) for size in (2_000, 4_000)])
    with pytest.raises(ConfigError, match=r"joins collective 0 on slot 0 with 2 messages of \d+ bytes, others with 2"):
        g.run(fold=True)


@pytest.mark.parametrize(
    ("routing", "strategy"), [("hash", {"dp": 4, "tp": 8}), ("spray", {"dp": 4, "tp": 4, "pp": 2})]
)
def test_servers_end_as_message_by_message(routing, strategy):
    fabric = rostam.fabric(
        "fat_tree", num_accelerators=32, radix=16, accelerator_bandwidth="100 Gb/s", server_size=8,
        server_bandwidth="2.4 Tb/s",
    )  # fmt: skip
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    plan = rostam.place(
        rostam.trace("gpt_125m"), machine, global_batch=32, strategy=rostam.Strategy.of(**strategy), software="ideal"
    )
    fast, whole = (rostam.simulate(plan, routing=routing, fold=fold, seed=3) for fold in (True, False))
    assert fast.iteration_times_s == whole.iteration_times_s
    assert fast.bytes_sent == whole.bytes_sent
    assert fast.num_messages == whole.num_messages


def test_messages_that_compete_all_over_a_torus_end_to_the_same_picosecond():
    # Which rate is rounded up decides ties, and those decide more ties: one last bit moves the iteration by 200 ns.
    machine = rostam.Machine(
        fabric=rostam.fabric("torus", dims=(4, 8), accelerator_bandwidth="1600 Gb/s"), accelerator="a100_80gb"
    )
    strategy = rostam.Strategy(dp=16, tp=2, precision="bf16_mixed", accelerators=SHUFFLED)
    plan = rostam.place(rostam.trace("gpt_125m"), machine, global_batch=64, strategy=strategy, software="ideal")
    fast, whole = (rostam.simulate(plan, fold=fold, max_iterations=1) for fold in (True, False))
    assert fast.iteration_times_s == whole.iteration_times_s
    np.testing.assert_array_equal(fast.breakdown_by_device, whole.breakdown_by_device)


@pytest.mark.parametrize("p", [2, 3, 7, 16, 24])
def test_hops_of_unlike_latency_end_as_message_by_message(p):
    # Two trees' ends: neighbours share a leaf or do not. Few join times, so that many ways are equally long.
    fabric = rostam.fabric("fat_tree", num_accelerators=24, radix=8, accelerator_bandwidth=8e9, planes=1)
    rng = np.random.default_rng(p)
    for _ in range(20):
        ranks = rng.permutation(24)[:p].tolist()
        starts = (rng.integers(0, 4, p) * rng.choice([20e-9, 1e-6, 1e-4])).tolist()
        collective = str(rng.choice(["all_reduce", "all_gather", "reduce_scatter"]))
        quiet, plain = (
            rostam.run_collective(
                fabric, collective, algorithm="ring", num_bytes=int(rng.integers(1, 2) * 1000 * p), ranks=ranks,
                start_s=starts, fold=False, shortcuts=shortcuts,
            )
            for shortcuts in (True, False)
        )  # fmt: skip
        assert quiet.finish_s.tolist() == plain.finish_s.tolist()


@pytest.mark.parametrize("p", [2, 3, 5, 8, 13])
def test_rings_of_unlike_links_end_as_message_by_message(p):
    # Laps that lose to standing at the slowest link, laps that gain on it, and ties of both.
    flat = rostam.fabric("electrical_flat", num_accelerators=p, link_bandwidth=1e9, latency=1e-6)
    rng = np.random.default_rng(p)
    for _ in range(40):
        fabric = flat.with_factors(
            bandwidth=rng.choice([1, 1, 1, 0.5, 0.25, 1 / 3][: rng.integers(2, 7)], len(flat.links)),
            latency=rng.choice([1, 0.5, 1e-2, 1e3, 1e6][: rng.integers(1, 6)], len(flat.links)),
        )
        starts = (rng.integers(0, 4, p) * rng.choice([0, 20e-9, 1e-6, 1e-4])).tolist()
        collective = str(rng.choice(["all_reduce", "all_gather", "reduce_scatter"]))
        num_bytes = p * int(rng.choice([1, 1000, 7777]))
        quiet, plain = (
            rostam.run_collective(
                fabric, collective, algorithm="ring", num_bytes=num_bytes, start_s=starts, fold=False,
                shortcuts=shortcuts, seed=1,
            )
            for shortcuts in (True, False)
        )  # fmt: skip
        assert quiet.finish_s.tolist() == plain.finish_s.tolist()
        assert quiet.link_bytes == pytest.approx(plain.link_bytes, rel=1e-9)
